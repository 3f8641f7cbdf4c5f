//! Where keys come from: systemd credentials, files, the environment; and the PEM files of TLS.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::secret::Secret;
use super::value::Fault;
use super::walk::{At, Section, Spot, Walk};
use super::{Roots, ServerTls};
use crate::limits::SECRET_BYTES_MAX;

/// The key that `section` names by one of `credential`, `env`, `file`. Each mistake is reported.
pub(super) fn secret(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Option<At<Secret>> {
    let key = ["credential", "file", "env"].into_iter().find(|key| section.has(key))?;
    let named = section.text(walk, key)?;
    let bytes = match key {
        "credential" => from_credential(walk, &named),
        "file" => from_file(walk, &named),
        _ => from_env(walk, &named),
    };
    match bytes.and_then(|bytes| check_secret(&bytes).map_err(Unread::from)) {
        Ok(value) => Some(At { value, spot: named.spot }),
        Err(Unread { fault, denied: true }) => {
            walk.denied(&named.spot, fault);
            Some(At { value: Secret::not_read(named.spot.line), spot: named.spot })
        }
        Err(Unread { fault, denied: false }) => {
            walk.fault(&named.spot, fault);
            None
        }
    }
}

/// Why something was not read, and whether another process may read it: one with other rights, another environment.
struct Unread<T = Fault> {
    fault: T,
    denied: bool,
}

impl<T> From<T> for Unread<T> {
    fn from(fault: T) -> Self {
        Unread { fault, denied: false }
    }
}

impl<T> Unread<T> {
    fn map<U>(self, to: impl FnOnce(T) -> U) -> Unread<U> {
        Unread { fault: to(self.fault), denied: self.denied }
    }
}

/// A key must be able to stand in a header: visible ASCII, one line.
pub(super) fn check_secret(bytes: &[u8]) -> Result<Secret, Fault> {
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return Err(Fault::new("gives an empty key", "put the key there, or leave this out"));
    }
    match std::str::from_utf8(bytes) {
        Ok(key) if key.len() > SECRET_BYTES_MAX => Err(Fault::new(
            format!("gives a key longer than {SECRET_BYTES_MAX} bytes"),
            "name what holds the key only",
        )),
        Ok(key) if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Secret::new(key)),
        _ => Err(Fault::new(
            "gives a key with a space, a line break or another character that no header may carry",
            "it must hold the key and nothing else, on one line",
        )),
    }
}

fn from_credential(walk: &mut Walk<'_>, name: &At<String>) -> Result<Vec<u8>, Unread> {
    let value = &name.value;
    if value.contains(['/', '\0']) || value == "." || value == ".." {
        return Err(Fault::new(
            "is not the name of a systemd credential",
            "write the name alone, as LoadCredential=NAME:… has it; for a path use file = \"…\"",
        )
        .into());
    }
    let Some(folder) = (walk.env)("CREDENTIALS_DIRECTORY").filter(|folder| !folder.is_empty()) else {
        let fault = Fault::new(
            "names a systemd credential, but CREDENTIALS_DIRECTORY is not set: systemd passed none",
            "add LoadCredential= to the unit; by hand: CREDENTIALS_DIRECTORY=/etc/credstore edgeward check",
        );
        return Err(Unread { fault, denied: true });
    };
    read_secret_file(walk, &name.spot, &Path::new(&folder).join(value)).map_err(|unread| {
        unread.map(|why| {
            let what = format!("systemd's credential {} {why}", echo(value));
            Fault::new(
                what,
                "add LoadCredential=NAME:/path/to/key to the unit, with the name that stands here",
            )
        })
    })
}

fn from_file(walk: &mut Walk<'_>, file: &At<String>) -> Result<Vec<u8>, Unread> {
    let path = beside_config(walk, &file.value);
    read_secret_file(walk, &file.spot, &path).map_err(|unread| {
        unread.map(|why| {
            let what = format!("the file {} {why}", echo(&file.value));
            Fault::new(what, "name a file that holds the key, and only that")
        })
    })
}

fn from_env(walk: &mut Walk<'_>, name: &At<String>) -> Result<Vec<u8>, Unread> {
    (walk.env)(&name.value).map(String::into_bytes).ok_or_else(|| Unread {
        fault: Fault::new(
            format!("the environment variable {} is not set", echo(&name.value)),
            "write the variable's name, and set it where edgeward starts: EnvironmentFile= in its unit",
        ),
        denied: is_variable(&name.value),
    })
}

/// Whether another environment may have a variable of this name: what looks like a pasted key is a mistake everywhere.
fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && (name.len() <= ECHO_BYTES || !name.bytes().any(|byte| byte.is_ascii_lowercase()))
}

/// What is longer, where a name is due, may be the key itself: the longest variable of the built-in clouds
/// has 19 bytes, the shortest cloud key in use about 32.
pub(super) const ECHO_BYTES: usize = 24;

/// A name for a message, unless somebody may have pasted the key itself in its place.
pub(super) fn echo(name: &str) -> String {
    let a_path = name.starts_with('/') || name.starts_with("./");
    if a_path || name.len() <= ECHO_BYTES { format!("{name:?}") } else { "named here".to_owned() }
}

/// A relative path in the configuration is meant from the configuration's folder.
pub(super) fn beside_config(walk: &Walk<'_>, path: &str) -> PathBuf {
    match walk.file.and_then(Path::parent) {
        Some(folder) => folder.join(path),
        None => PathBuf::from(path),
    }
}

/// The bytes of a small regular file; the error continues a sentence that begins with its name.
fn read_secret_file(walk: &mut Walk<'_>, spot: &Spot, path: &Path) -> Result<Vec<u8>, Unread<String>> {
    let (bytes, mode) = read_small(path, SECRET_BYTES_MAX as u64 + 2)?;
    warn_if_open(walk, spot, mode);
    Ok(bytes)
}

fn warn_if_open(walk: &mut Walk<'_>, spot: &Spot, mode: u32) {
    if mode & 0o004 != 0 {
        walk.warn(
            spot,
            "this secret file can be read by every user of this box",
            "chmod 600 it, or 640 with edgeward's group",
        );
    }
}

fn read_small(path: &Path, most: u64) -> Result<(Vec<u8>, u32), Unread<String>> {
    let reason = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "does not exist".to_owned().into(),
        std::io::ErrorKind::PermissionDenied => {
            Unread { fault: "may not be read by this user".to_owned(), denied: true }
        }
        _ => format!("cannot be read: {error}").into(),
    };
    // Looked at before it is opened: opening a FIFO would wait for its writer.
    let metadata = std::fs::metadata(path).map_err(reason)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned().into());
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(reason)?;
    Ok((bytes, metadata.mode()))
}

/// A PEM file of certificates or keys, in bytes. The system's whole bundle has some 220 KiB.
const PEM_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// `[tls]`: both files there, both PEM, and the key belonging to the certificate.
pub(super) fn server_tls(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Option<ServerTls> {
    for key in ["cert", "key"] {
        if !section.has(key) {
            let spot = section.spot(walk, key);
            walk.missing(
                &spot,
                "is missing: TLS needs a certificate and its key",
                format_args!("add {key} = \"/path/to.pem\""),
            );
        }
    }
    let cert = section.text(walk, "cert");
    let key = section.text(walk, "key");
    let chain = cert.as_ref().and_then(|cert| certificates(walk, cert));
    let private = key.as_ref().and_then(|key| private_key(walk, key));
    let (cert, key) = (cert?, key?);
    if let (Some(chain), Some(private)) = (chain, private) {
        let provider = rustls::crypto::ring::default_provider();
        if let Err(error) = rustls::sign::CertifiedKey::from_der(chain, private, &provider) {
            walk.problem(
                &key.spot,
                format_args!("the key does not go with the certificate: {error}"),
                "name the key that the certificate in [tls] cert was made for, leaf certificate first",
            );
        }
    }
    Some(ServerTls { cert: beside_config(walk, &cert.value), key: beside_config(walk, &key.value) })
}

fn certificates(walk: &mut Walk<'_>, file: &At<String>) -> Option<Vec<CertificateDer<'static>>> {
    let path = beside_config(walk, &file.value);
    let found = read_small(&path, PEM_BYTES_MAX).and_then(|(bytes, _)| {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        match chain {
            Ok(chain) if chain.is_empty() => Err("has no PEM certificate in it".to_owned().into()),
            Ok(chain) => Ok(chain),
            Err(error) => Err(format!("is not good PEM: {error}").into()),
        }
    });
    report(walk, file, found, "it must hold -----BEGIN CERTIFICATE----- and what follows")
}

fn private_key(walk: &mut Walk<'_>, file: &At<String>) -> Option<PrivateKeyDer<'static>> {
    let path = beside_config(walk, &file.value);
    let found = read_small(&path, PEM_BYTES_MAX).and_then(|(bytes, mode)| {
        warn_if_open(walk, &file.spot, mode);
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| "has no PEM private key in it".to_owned().into())
    });
    report(walk, file, found, "it must hold -----BEGIN PRIVATE KEY----- and what follows, not encrypted")
}

fn report<T>(
    walk: &mut Walk<'_>,
    file: &At<String>,
    found: Result<T, Unread<String>>,
    hint: &'static str,
) -> Option<T> {
    let Unread { fault: why, denied } = match found {
        Ok(found) => return Some(found),
        Err(unread) => unread,
    };
    let fault = Fault::new(format!("the file {:?} {why}", file.value), hint);
    if denied {
        walk.denied(&file.spot, fault);
    } else {
        walk.fault(&file.spot, fault);
    }
    None
}

/// `ca_file` and `roots` of a target.
pub(super) fn roots(walk: &mut Walk<'_>, target: &Section<'_, '_>) -> Roots {
    const ROOTS: &[(&str, bool)] = &[("bundled", false), ("system", true)];
    let system = target.word(walk, "roots", ROOTS);
    let Some(file) = target.text(walk, "ca_file") else {
        return if system == Some(true) { Roots::System } else { Roots::Bundled };
    };
    if target.has("roots") {
        walk.problem(
            &file.spot,
            "stands beside roots: ca_file alone says which authorities are trusted",
            "leave one of the two out",
        );
    }
    certificates(walk, &file);
    Roots::File(beside_config(walk, &file.value))
}
