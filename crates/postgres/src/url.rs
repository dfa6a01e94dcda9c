//! Connection URLs: `postgres://user@host:port/database?sslmode=verify-full`, as `psql` takes them. What a URL leaves out comes
//! from the environment (`PGHOST`, `PGPASSWORD` and others) and from `~/.pgpass`.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use percent_encoding::percent_decode_str;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::tls::{Certificates, Verify};

/// The socket directory of Debian's packages, used if no host is named.
const SOCKETS: &str = "/var/run/postgresql";
const DEFAULT_PORT: u16 = 5_432;

/// Where a server is, and how a session to it is encrypted.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) config: Config,
    pub(crate) verify: Verify,
    pub(crate) certificates: Certificates,
}

impl Place {
    /// Reads a connection URL. The error does not show it.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (base, options) = url.split_once('?').unwrap_or((url, ""));
        let mut encryption = Encryption::from_environment();
        let mut others = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = percent_decode_str(value).decode_utf8().map_err(|error| error.to_string())?;
            if !encryption.set(name, &value) {
                others.push(option);
            }
        }
        let url = match others.iter().any(|option| option.starts_with("host=") || option.starts_with("hostaddr=")) {
            true => without_authority(base, &others),
            false if others.is_empty() => base.to_owned(),
            false => format!("{base}?{}", others.join("&")),
        };
        let mut config = Config::from_str(&url).map_err(|error| match std::error::Error::source(&error) {
            Some(cause) => cause.to_string(),
            None => error.to_string(),
        })?;
        let verify = encryption.mode(&mut config)?;
        fill_in(&mut config)?;
        if config.get_password().is_none()
            && let Some(password) = password_from_file(&config)
        {
            config.password(password);
        }
        let Encryption { root, certificate, key, .. } = encryption;
        Ok(Self { config, verify, certificates: Certificates { root, client: certificate.zip(key) } })
    }

    /// Display name of the database, without the password.
    pub(crate) fn name(&self) -> String {
        let database = self.config.get_dbname().unwrap_or_default();
        format!("postgres {}/{database}", place_of(&self.config))
    }
}

/// A URL whose parameters name the host: one before them does not count, as in `psql`. Its port does, if no parameter names one.
fn without_authority(base: &str, options: &[&str]) -> String {
    let (scheme, rest) = base.split_once("://").unwrap_or(("postgres", base));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
    let port = port.filter(|_| !options.iter().any(|option| option.starts_with("port=")));
    let port = port.map(|port| format!("&port={port}")).unwrap_or_default();
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    format!("{scheme}://{user}/{database}?{}{port}", options.join("&"))
}

fn place_of(config: &Config) -> String {
    let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
    match config.get_hosts().first() {
        Some(Host::Unix(directory)) => directory.display().to_string(),
        Some(Host::Tcp(host)) => format!("{host}:{port}"),
        None => format!("{}:{port}", config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default()),
    }
}

/// The parameters of a URL that the driver does not know.
#[derive(Default)]
struct Encryption {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Encryption {
    fn from_environment() -> Self {
        let variable = |name: &str| env::var(name).ok();
        Self {
            mode: variable("PGSSLMODE"),
            root: variable("PGSSLROOTCERT"),
            certificate: variable("PGSSLCERT"),
            key: variable("PGSSLKEY"),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> bool {
        let place = match name {
            "sslmode" | "ssl-mode" => &mut self.mode,
            "sslrootcert" | "ssl-root-cert" => &mut self.root,
            "sslcert" | "ssl-cert" => &mut self.certificate,
            "sslkey" | "ssl-key" => &mut self.key,
            _ => return false,
        };
        *place = Some(value.to_owned());
        true
    }

    fn mode(&self, config: &mut Config) -> Result<Verify, String> {
        let (mode, verify) = match self.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, Verify::Nothing),
            "allow" | "prefer" => (SslMode::Prefer, Verify::Nothing),
            "require" => (SslMode::Require, Verify::Nothing),
            "verify-ca" => (SslMode::Require, Verify::Authority),
            "verify-full" => (SslMode::Require, Verify::AuthorityAndName),
            other => return Err(format!("{other:?} is no sslmode")),
        };
        config.ssl_mode(mode);
        Ok(verify)
    }
}

/// Fills in what the URL leaves out.
fn fill_in(config: &mut Config) -> Result<(), String> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let sockets = Path::new(SOCKETS).is_dir().then(|| SOCKETS.to_owned());
        config.host(variable("PGHOST").or(sockets).unwrap_or_else(|| "localhost".to_owned()));
    }
    if config.get_ports().is_empty() {
        let port = variable("PGPORT").map_or(Ok(DEFAULT_PORT), |port| port.parse());
        config.port(port.map_err(|_| "PGPORT is no port".to_owned())?);
    }
    if config.get_user().is_none() {
        let user = variable("PGUSER").or_else(|| variable("USER")).unwrap_or_else(|| "postgres".to_owned());
        config.user(user);
    }
    if config.get_dbname().is_none() {
        let database = variable("PGDATABASE").or_else(|| config.get_user().map(str::to_owned));
        config.dbname(database.unwrap_or_default());
    }
    if let (None, Some(password)) = (config.get_password(), variable("PGPASSWORD")) {
        config.password(password);
    }
    Ok(())
}

/// The password for this server in `PGPASSFILE` or `~/.pgpass`, if only its owner may read the file.
fn password_from_file(config: &Config) -> Option<String> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let path = env::var_os("PGPASSFILE").map(PathBuf::from).or_else(home)?;
    if fs::metadata(&path).ok()?.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others may read this file of passwords, so it is not used; chmod 600");
        return None;
    }
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        _ => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT).to_string();
    let wanted = [host.as_str(), port.as_str(), config.get_dbname()?, config.get_user()?];
    fs::read_to_string(path).ok()?.lines().find_map(|line| password_in(line, wanted))
}

/// The password of a line `host:port:database:user:password`, if it is for these. `*` stands for any, `\` before a sign for the
/// sign.
fn password_in(line: &str, wanted: [&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match sign {
            // The password is the rest of the line.
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut()?.extend(signs.next()),
            sign => fields.last_mut()?.push(sign),
        }
    }
    let password = (fields.len() == 5).then(|| fields.pop())??;
    let is_for = |(field, wanted): (&String, &str)| field == "*" || field == wanted;
    fields.iter().zip(wanted).all(is_for).then_some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_pgpass_gives_the_password_for_its_server() {
        let wanted = ["db.example.com", "5432", "kukuri", "kukuri"];
        for (line, password) in [
            ("db.example.com:5432:kukuri:kukuri:secret", Some("secret")),
            ("*:*:*:kukuri:with\\:colon:and more", Some("with:colon:and more")),
            ("db.example.com:5433:kukuri:kukuri:secret", None),
            ("# db.example.com:5432:kukuri:kukuri:secret", None),
            ("db.example.com:5432:kukuri", None),
        ] {
            assert_eq!(password_in(line, wanted).as_deref(), password, "{line}");
        }
    }

    #[test]
    fn a_url_names_its_place_and_its_encryption() {
        for (url, name, verify) in [
            (
                "postgres://me@db.example.com/kukuri?sslmode=verify-full",
                "postgres db.example.com:5432/kukuri",
                Verify::AuthorityAndName,
            ),
            (
                "postgresql://me:secret@127.0.0.1:6000/k?sslmode=verify-ca&sslrootcert=/a.pem",
                "postgres 127.0.0.1:6000/k",
                Verify::Authority,
            ),
            ("postgres://me@%2Fvar%2Frun%2Fpg/k", "postgres /var/run/pg/k", Verify::Nothing),
            ("postgres:///k?host=/var/run/pg&user=me", "postgres /var/run/pg/k", Verify::Nothing),
            ("postgres://me@localhost:6000/k?host=/var/run/pg", "postgres /var/run/pg/k", Verify::Nothing),
        ] {
            let place = Place::parse(url).unwrap();
            assert_eq!((place.name().as_str(), place.verify), (name, verify), "{url}");
        }
        for url in ["postgres://me:secret@host:none/k", "postgres://me:secret@host/k?sslmode=maybe", "secret"] {
            let error = Place::parse(url).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
