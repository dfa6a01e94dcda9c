//! Connections to a server: TLS modes, and one-line errors.

use std::{
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    time::Duration,
};

use kukuri_postgres::Session;
use kukuri_store::{
    Outcome, StoreError,
    conformance::build::{NOW, admitted, note},
    port::*,
};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::{
    patient,
    support::{
        block_on,
        cluster::{Cluster, as_owner, run as run_command},
        numbers, private, run,
    },
};

/// OpenSSL configuration of a certificate authority and of a server certificate.
const CERTIFICATES: &str = "[req]\ndistinguished_name=name\nprompt=no\n[name]\nCN=kukuri test\n\
     [authority]\nbasicConstraints=critical,CA:TRUE\n[server]\nbasicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost\n";
/// Roles for failing logins: `locked` needs a password, which no error may contain.
const ROLES: &str = "CREATE ROLE locked LOGIN PASSWORD 'open sesame'; CREATE ROLE poor LOGIN";
const PASSWORD: &str = "not%20this";

/// A server reached over TCP, with a TLS certificate.
struct Far {
    cluster: Cluster,
    port: u16,
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.cluster.stop("immediate");
        self.cluster.remove();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

fn certify(directory: &Path) {
    let at = |name: &str| directory.join(name).display().to_string();
    fs::write(at("certificates.cnf"), CERTIFICATES).unwrap();
    let certificates = [("authority", "authority"), ("stranger", "authority"), ("server", "server")];
    for (name, extensions) in certificates {
        let mut openssl = as_owner("openssl");
        openssl.args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        openssl.args(["-days", "2", "-config", &at("certificates.cnf"), "-extensions", extensions]);
        openssl.args(["-keyout", &at(&format!("{name}.key")), "-out", &at(&format!("{name}.pem"))]);
        if extensions == "server" {
            openssl.args(["-CA", &at("authority.pem"), "-CAkey", &at("authority.key")]);
        }
        run_command(openssl.stderr(Stdio::null())).expect("openssl, which Postgres brings along");
    }
}

impl Far {
    fn start(name: &str) -> Self {
        let cluster = Cluster::at(private(&format!("postgres-{name}-{}", std::process::id())));
        let directory = cluster.directory().to_owned();
        drop(cluster.make().unwrap());
        certify(&directory);
        let access = directory.join("data/pg_hba.conf");
        let first = "host all locked all scram-sha-256\n".to_owned();
        fs::write(&access, first + &fs::read_to_string(&access).unwrap()).unwrap();
        let start = |_| {
            let (port, place) = (free_port(), directory.display());
            let cluster = Cluster::at(directory.clone()).with(format!(
                "-c listen_addresses=localhost -c port={port} -c ssl=on -c ssl_cert_file={place}/server.pem \
                 -c ssl_key_file={place}/server.key"
            ));
            cluster.start().is_ok().then(|| Self { cluster, port })
        };
        // Another process may take the free port before the server does.
        let far = (0..5).find_map(start).expect("a server with a port");
        block_on(async { run(&far.url("postgres", ""), ROLES).await.unwrap() });
        far
    }

    fn url(&self, role: &str, options: &str) -> String {
        format!("postgres://{role}@localhost:{}/postgres{options}", self.port)
    }

    fn trusting(&self, mode: &str, authority: &str) -> String {
        let directory = self.cluster.directory().display();
        self.url("postgres", &format!("?sslmode={mode}&sslrootcert={directory}/{authority}.pem"))
    }
}

/// The error text of a store that cannot be opened.
async fn refusal(url: &str) -> String {
    let options = PostgresOptions { acquire_timeout: Duration::from_secs(20), ..patient() };
    let refused = PostgresStore::connect(url, options).await.err().unwrap();
    assert!(matches!(refused, StoreError::NotOpened { .. }), "{refused:?}");
    let said = refused.to_string();
    assert!(!said.contains('\n') && !said.contains("not this") && !said.contains(PASSWORD), "{said}");
    said
}

#[test]
fn sslmode_encrypts_connections_and_verifies_the_server() {
    let far = Far::start("tls");
    block_on(async {
        for mode in ["require", "verify-ca", "verify-full"] {
            let url = far.trusting(mode, "authority");
            let store = PostgresStore::connect(&url, patient()).await.unwrap();
            store.stats().await.unwrap();
            // Sessions that read, write and listen.
            let sessions = "SELECT count(*) FILTER (WHERE ssl = wanted) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid), \
                 (VALUES (false), (true)) AS w (wanted) WHERE application_name = 'kukuri-node' GROUP BY wanted ORDER BY wanted";
            let [plain, encrypted] = numbers(&url, sessions).await[..] else { panic!("{mode}") };
            assert!(plain == 0 && encrypted >= 2, "{mode}: {plain} and {encrypted}");
            store.close().await.unwrap();
        }
        for mode in ["verify-ca", "verify-full"] {
            let said = refusal(&far.trusting(mode, "stranger")).await;
            assert!(said.contains("no encrypted connection") && said.contains("sslrootcert"), "{said}");
        }
        // A trusted certificate for another host name.
        let other_name = far.trusting("verify-full", "authority").replace("localhost", "127.0.0.1");
        assert!(refusal(&other_name).await.contains("no encrypted connection"));
    });
}

#[test]
fn session_of_another_role_does_not_hold_up_writers() {
    let far = Far::start("stranger");
    block_on(async {
        let store = PostgresStore::connect(&far.url("postgres", ""), patient()).await.unwrap();
        // The keys of the former writers' lock and of the migrations.
        let stranger = Session::connect(&far.url("poor", "")).await.unwrap();
        let hold = "SELECT pg_advisory_lock(7742364213), pg_advisory_lock(7742364214)";
        stranger.run(hold).await.unwrap();
        let lock = "BEGIN; LOCK TABLE cn_relay.writers_lock IN ACCESS SHARE MODE";
        assert!(stranger.run(lock).await.is_err());

        let outcomes = store.ingest(vec![admitted(&note("a note").build())], NOW).await.unwrap().outcomes;
        assert_eq!(outcomes, [Outcome::Stored]);
        let again = PostgresStore::connect(&far.url("postgres", ""), patient()).await.unwrap();
        assert_eq!(again.stats().await.unwrap().effective, 1, "a start needs no migration, and waits for nobody");
        store.close().await.unwrap();
        again.close().await.unwrap();
    });
}

/// Passes connections on, as a pooler by transaction does: without the settings of the session.
fn pooler(to: u16) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
            std::thread::spawn(move || pass_without_settings(client, server));
        }
    });
    port
}

fn pass_without_settings(mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut startup)?;
    // A version, then names and values, each with a zero at its end.
    let (version, texts) = startup.split_at(4);
    let texts: Vec<&[u8]> = texts.split(|byte| *byte == 0).collect();
    let kept = texts.chunks_exact(2).filter(|pair| !pair[0].is_empty() && pair[0] != b"options");
    let kept = kept.flat_map(|pair| [pair[0], b"\0", pair[1], b"\0"].concat());
    let body: Vec<u8> = version.iter().copied().chain(kept).chain([0]).collect();
    server.write_all(&(body.len() as u32 + 4).to_be_bytes())?;
    server.write_all(&body)?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || io::copy(&mut from, &mut to));
    io::copy(&mut client, &mut server).map(drop)
}

#[test]
fn pooler_that_drops_the_settings_of_sessions_is_named() {
    let far = Far::start("pooler");
    let port = pooler(far.port);
    block_on(async {
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable");
        let said = refusal(&url).await;
        assert!(said.contains("by session, not by transaction") && said.contains("statement_timeout"), "{said}");
    });
}

#[test]
fn failed_connection_is_explained_in_one_line_without_the_password() {
    let far = Far::start("far");
    // A server that accepts connections and never answers.
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mute_port = mute.local_addr().unwrap().port();
    block_on(async {
        let locked = format!("locked:{PASSWORD}");
        let elsewhere = |place: &str| format!("postgres://{locked}@{place}/kukuri");
        for (what, url, said) in [
            ("a wrong password", far.url(&locked, ""), "password authentication failed for user \"locked\""),
            ("no password", far.url("locked", ""), "password"),
            ("no such role", far.url("nobody", ""), "role \"nobody\" does not exist"),
            (
                "no such database",
                far.url("poor", "").replace("/postgres", "/nothing"),
                "database \"nothing\" does not exist",
            ),
            ("no right to make a schema", far.url("poor", ""), "may create it"),
            ("nobody listens", elsewhere(&format!("localhost:{}", free_port())), "it can't be reached: "),
            ("nobody answers", elsewhere(&format!("127.0.0.1:{mute_port}")), "it did not answer within 20s"),
            ("no such host", elsewhere("nowhere.invalid"), "it can't be reached: "),
            (
                "no such socket",
                "postgres://locked@localhost/kukuri?host=/nowhere".to_owned(),
                "/nowhere/kukuri: it can't be",
            ),
            ("no such mode", far.url(&locked, "?sslmode=perhaps"), "this URL can't be read"),
            ("no URL", format!("postgres://{locked}@localhost:port/kukuri"), "this URL can't be read"),
        ] {
            let refusal = refusal(&url).await;
            assert!(refusal.contains(said), "{what}: {refusal}");
        }
        drop(mute);
    });
}
