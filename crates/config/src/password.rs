//! Hides the passwords of URLs.

use url::form_urlencoded;

const HIDDEN: &str = "***";

/// The text without the password of a URL in it. The URL may be malformed: an unescaped password may contain any
/// character that ends it by the rules for URLs.
pub fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let user = user.map(|user| match user.split_once(':') {
        Some((name, _)) => format!("{name}:{HIDDEN}@"),
        None => format!("{user}@"),
    });
    let (location, query) = rest.split_once('?').map_or((rest, None), |(location, query)| (location, Some(query)));
    let query = query.map(|query| format!("?{}", query.split('&').map(hide).collect::<Vec<_>>().join("&")));
    format!("{scheme}://{}{location}{}", user.unwrap_or_default(), query.unwrap_or_default())
}

/// One `name=value` of a query.
fn hide(pair: &str) -> String {
    let name = form_urlencoded::parse(pair.as_bytes()).next().map(|(name, _)| name);
    match name.filter(|name| name.to_lowercase().contains("password")) {
        Some(name) => format!("{name}={HIDDEN}"),
        None => pair.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_hidden_before_the_host_and_in_the_query() {
        for (text, shown) in [
            ("postgres://kukuri@db.example.com/kukuri", "postgres://kukuri@db.example.com/kukuri"),
            ("postgres://kukuri:secret@db:5432/kukuri", "postgres://kukuri:***@db:5432/kukuri"),
            ("postgresql://kukuri:s:e@c/r?et@db/kukuri", "postgresql://kukuri:***@db/kukuri"),
            (
                "postgres://u@localhost/db?host=/run/p&password=secret",
                "postgres://u@localhost/db?host=/run/p&password=***",
            ),
            ("postgres://u@localhost/db?pass%77ord=secret", "postgres://u@localhost/db?password=***"),
            ("postgres://localhost:5432/db", "postgres://localhost:5432/db"),
            ("lmdb:/srv/a:b@c", "lmdb:/srv/a:b@c"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }
}
