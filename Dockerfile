# Builds the node and puts it alone into a small image.
#   docker build -t kukuri-node .
#   docker run -p 7777:7777 -v kukuri:/data -e KUKURI_PUBLIC_URL=ws://localhost:7777 kukuri-node
# Without the URL that clients use, authentication (NIP-42) and vanish requests (NIP-62) are not recognised.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --package kukuri-node

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 kukuri && install -d -o kukuri -m 700 /data
COPY --from=build /src/target/dist/kukuri-node /usr/local/bin/kukuri-node
USER kukuri
VOLUME /data
EXPOSE 7777
# Settings come as KUKURI_… variables, or from a file named by KUKURI_CONFIG.
ENV KUKURI_LISTEN=0.0.0.0:7777 KUKURI_DATA=/data
STOPSIGNAL SIGTERM
ENTRYPOINT ["kukuri-node"]
