//! The public URLs of this relay: which URLs in events name it.

use url::Url;

/// The public URLs of this relay.
#[derive(Clone, Debug, Default)]
pub struct RelayUrls(Vec<String>);

impl RelayUrls {
    /// The public URLs of this relay.
    pub fn new(urls: &[impl AsRef<str>]) -> Self {
        Self(urls.iter().map(|url| normalize(url.as_ref())).collect())
    }

    /// Whether the URL is one of them, after normalization.
    pub fn contains(&self, url: &str) -> bool {
        self.0.contains(&normalize(url))
    }

    /// The first of them as a URL of HTTP, without a slash at its end.
    pub fn http_url(&self) -> String {
        let url = self.0.first().map_or("", String::as_str);
        url.strip_prefix("ws").map_or_else(|| url.to_owned(), |rest| format!("http{rest}"))
    }

    /// Whether the URL is that of a request to this relay by HTTP: path and query below its URL, or at the root of its host.
    pub fn contains_request(&self, url: &str, path_and_query: &str) -> bool {
        let Some(url) = read(url) else { return false };
        let is_asked =
            |base: &str| read(&format!("{}{path_and_query}", base.trim_end_matches('/'))) == Some(url.clone());
        self.0.iter().any(|base| is_asked(base) || root(base).is_some_and(|root| is_asked(&root)))
    }
}

/// A URL as it is compared: scheme and host in lower case, that of HTTP as that of a WebSocket, no default port, no slash at the end
/// of its path.
fn read(url: &str) -> Option<Url> {
    let url = url.trim();
    // The scheme of a URL of HTTP can't be changed once it is parsed.
    let of_socket = match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => format!("ws://{rest}"),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => format!("wss://{rest}"),
        _ => url.to_owned(),
    };
    let mut parsed = Url::parse(&of_socket).ok()?;
    let path = parsed.path().trim_end_matches('/').to_owned();
    parsed.set_path(&path);
    Some(parsed)
}

/// A text that is not a URL is unchanged.
fn normalize(url: &str) -> String {
    read(url).map_or_else(|| url.trim().to_owned(), |parsed| parsed.as_str().trim_end_matches('/').to_owned())
}

fn root(base: &str) -> Option<String> {
    let mut parsed = Url::parse(base).ok()?;
    parsed.set_path("");
    Some(parsed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_compared_without_case_of_host_default_port_or_slash() {
        let ours = RelayUrls::new(&["wss://Relay.Example.com:443/"]);
        for (url, same) in [
            ("wss://relay.example.com", true),
            ("WSS://relay.example.com/", true),
            ("wss://relay.example.com/nostr", false),
            ("https://relay.example.com", true),
            ("ws://relay.example.com", false),
            ("http://relay.example.com", false),
            ("relay.example.com", false),
        ] {
            assert_eq!(ours.contains(url), same, "{url}");
        }
        assert_eq!(ours.http_url(), "https://relay.example.com");
    }
}
