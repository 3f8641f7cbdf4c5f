//! The clients' side: listeners, keys, TLS, and who may come in.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ring::digest::{SHA256, digest};

use super::target::{label, name};
use super::value::{Fault, flag, shown};
use super::walk::{At, Section, Spot, Walk};
use super::{ClientKey, Egress, Priority, ServerTls, credential, schema, schema_policy, terms};
use crate::limits::{CLIENT_KEY_BYTES_GOOD, SOCKET_PATH_BYTES};

/// Where clients connect, unless the file says otherwise.
pub(super) const LISTEN: SocketAddr =
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), super::DEFAULT_PORT);

/// Everything that decides who comes in; the checks between these need all of them.
pub(super) struct Door {
    pub listen: Vec<SocketAddr>,
    pub allow_anonymous: bool,
    pub tls: Option<ServerTls>,
    pub keys: Vec<ClientKey>,
    /// Where keys keep prompts from going, for the check whether there is somewhere left.
    pub confined: Vec<At<Egress>>,
    /// Where keys have a budget of money, for the check whether anything costs some.
    pub paying: Vec<Spot>,
}

pub(super) fn door(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Door {
    let listen = listen(walk, top);
    let tls = top.table(walk, "tls", &schema::TLS).and_then(|tls| credential::server_tls(walk, &tls));
    let sections = top.tables(walk, "key", &schema::KEY, label);
    let any_key = sections.as_ref().is_some_and(|sections| !sections.is_empty());
    let (mut confined, mut paying) = (Vec::new(), Vec::new());
    let keys = keys(walk, sections.as_deref().unwrap_or_default(), &mut confined, &mut paying);
    let asked = top.read(walk, "allow_anonymous", flag);
    let beyond = listen.iter().find(|at| !at.value.ip().is_loopback());
    match (&asked, any_key, beyond) {
        (Some(At { value: true, spot }), true, _) => {
            walk.warn(
                spot,
                "requests without a key are let in although keys are configured",
                "leave allow_anonymous out",
            );
        }
        (Some(At { value: false, spot }), false, _) => {
            walk.missing(
                spot,
                "nobody could come in: there is no [[key]]",
                "add [[key]], or leave allow_anonymous out",
            );
        }
        (None, false, Some(At { value, spot })) => {
            walk.missing(
                spot,
                format_args!("{value} is open to the network, and no key is configured"),
                "add [[key]] with name and sha256, or write allow_anonymous = true",
            );
        }
        _ => {}
    }
    if let (Some(At { value, spot }), true, false) = (beyond, any_key, top.has("tls")) {
        let what =
            format!("without [tls] the clients' keys reach {value} in clear, for anyone on the LAN to read");
        walk.warn(spot, what, "add [tls] with cert and key");
    }
    let listen: Vec<_> = listen.into_iter().map(|at| at.value).collect();
    let home = listen.iter().all(|address| address.ip().is_loopback());
    let allow_anonymous = asked.map_or(!any_key && home, |asked| asked.value);
    Door { listen, allow_anonymous, tls, keys, confined, paying }
}

fn listen(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Vec<At<SocketAddr>> {
    let example = format!("[\"{LISTEN}\"]");
    let Some(texts) = top.texts(walk, "listen", &example) else {
        return vec![At { value: LISTEN, spot: Spot { key: "listen".to_owned(), line: None } }];
    };
    if texts.is_empty() {
        let spot = top.spot(walk, "listen");
        walk.missing(&spot, "is empty: nobody could connect", format_args!("write listen = {example}"));
    }
    let mut listen: Vec<At<SocketAddr>> = Vec::new();
    for At { value, spot } in texts {
        let address = match value.parse::<SocketAddr>() {
            Ok(address) => address,
            Err(_) => {
                walk.fault(&spot, no_address(&value));
                continue;
            }
        };
        let clash = listen.iter().find(|other| clash(other.value, address));
        if let Some(other) = clash {
            let what = if other.value == address {
                format!("{address} stands here twice")
            } else {
                format!("{address} is already covered by {}", other.value)
            };
            walk.problem(&spot, what, "name each address once");
        }
        listen.push(At { value: address, spot });
    }
    listen
}

/// Whether the second listener could not be opened beside the first. Port 0 is a new port each time.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port()
        && a.port() != 0
        && a.is_ipv4() == b.is_ipv4()
        && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

fn no_address(text: &str) -> Fault {
    let port = super::DEFAULT_PORT;
    let hint = if text.contains("://") {
        "write the address alone, without http://".to_owned()
    } else if let Ok(ip) = text.parse::<IpAddr>() {
        format!("write \"{}\", with the port", SocketAddr::new(ip, port))
    } else if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
        format!("write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for the whole network")
    } else if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok()) {
        format!("write \"127.0.0.1:{port}\"")
    } else {
        format!("write an IP address and a port: \"127.0.0.1:{port}\", \"0.0.0.0:{port}\", \"[::1]:{port}\"")
    };
    Fault::new(format!("{} is not an address and a port", shown(text)), hint)
}

fn keys(
    walk: &mut Walk<'_>,
    sections: &[Section<'_, '_>],
    confined: &mut Vec<At<Egress>>,
    paying: &mut Vec<Spot>,
) -> Vec<ClientKey> {
    let mut keys: Vec<ClientKey> = Vec::new();
    for section in sections {
        if !section.has("name") {
            walk.missing(&section.spot, "has no name: whose key is it?", "add name = \"…\", for the log");
        }
        let name = name(walk, section, "name");
        if let Some(At { value, spot }) = &name
            && keys.iter().any(|key| key.name == *value)
        {
            walk.problem(spot, "two keys have this name", "write another one");
        }
        let sha256 = sha256(walk, section);
        let operator = section.flag(walk, "operator").unwrap_or(false);
        let local_only = terms::local_only(walk, section);
        let priority = section.word(walk, "priority", schema_policy::PRIORITIES);
        let budget = terms::budget(walk, section);
        confined.extend(local_only.clone());
        if budget.money_per_day.is_some() {
            paying.push(section.spot_below(walk, "budget", "money_per_day"));
        }
        let (Some(name), Some(At { value: sha256, spot })) = (name, sha256) else { continue };
        if let Some(other) = keys.iter().find(|key| key.sha256 == sha256) {
            let what = format!("is the same key as \"{}\"'s: the log could not tell them apart", other.name);
            walk.problem(&spot, what, "give each client a key of its own");
        }
        keys.push(ClientKey {
            name: name.value,
            sha256,
            operator,
            local_only: local_only.map_or(Egress::Anywhere, |far| far.value),
            priority: priority.unwrap_or(Priority::Normal),
            budget,
        });
    }
    keys
}

fn sha256(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Option<At<[u8; 32]>> {
    const SOURCES: [&str; 4] = ["sha256", "credential", "env", "file"];
    match SOURCES.iter().filter(|source| section.has(source)).count() {
        0 => {
            walk.missing(
                &section.spot,
                "says nothing about the key",
                "add sha256 = \"…\" (printf %s KEY | sha256sum), credential = \"…\", file = \"…\" or env = \"…\"",
            );
            return None;
        }
        1 => {}
        _ => {
            walk.problem(
                &section.spot,
                "names several sources of the key",
                "keep one of sha256, credential, file, env",
            );
            return None;
        }
    }
    if section.has("sha256") {
        let hex = section.text(walk, "sha256")?;
        let Some(value) = from_hex(&hex.value) else {
            // Not shown: it may be the key itself, put here by mistake.
            walk.problem(
                &hex.spot,
                "is not a SHA-256: 64 hexadecimal digits",
                "write what printf %s KEY | sha256sum prints first",
            );
            return None;
        };
        if digest(&SHA256, b"").as_ref() == value {
            walk.problem(
                &hex.spot,
                "is the SHA-256 of nothing at all",
                "hash the key: printf %s KEY | sha256sum",
            );
        }
        return Some(At { value, spot: hex.spot });
    }
    let At { value: secret, spot } = credential::secret(walk, section)?;
    if secret.expose().len() < CLIENT_KEY_BYTES_GOOD {
        walk.warn(&spot, "this key is short enough to be guessed", "make one with: openssl rand -hex 32");
    }
    let value = digest(&SHA256, secret.expose().as_bytes()).as_ref().try_into().ok()?;
    Some(At { value, spot })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (pair, byte) in text.as_bytes().chunks_exact(2).zip(&mut bytes) {
        let digit = |n: usize| char::from(*pair.get(n)?).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(bytes)
}

/// `admin_listen`, or the folder that systemd made for us (`RuntimeDirectory=`).
pub(super) fn admin_listen(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Option<PathBuf> {
    let Some(path) = top.text(walk, "admin_listen") else { return default_admin(walk) };
    let named = path.value.strip_prefix("unix:").unwrap_or(&path.value).to_owned();
    let resolved = credential::beside_config(walk, &named);
    let (what, hint) = if named.parse::<SocketAddr>().is_ok() || named.contains("://") {
        (
            "is a network address; operators connect through a Unix socket".to_owned(),
            "write \"/run/edgeward/admin.sock\"",
        )
    } else if resolved.as_os_str().len() > SOCKET_PATH_BYTES {
        (
            format!("is longer than {SOCKET_PATH_BYTES} bytes, which Linux refuses for a socket"),
            "choose a shorter path",
        )
    } else if named.ends_with('/') {
        ("is a folder".to_owned(), "add the socket's name: \"…/admin.sock\"")
    } else {
        return Some(resolved);
    };
    walk.problem(&path.spot, what, hint);
    None
}

pub(super) fn default_admin(walk: &Walk<'_>) -> Option<PathBuf> {
    // systemd separates several folders with colons; the first is the unit's own.
    let folders = (walk.env)("RUNTIME_DIRECTORY")?;
    let first = folders.split(':').next().filter(|first| first.starts_with('/'))?;
    Some(PathBuf::from(first).join("admin.sock"))
}

/// `hosts`: lower case, no port.
pub(super) fn hosts(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Vec<String> {
    let hint =
        "write the name alone, without http://, port or *; IP addresses are let in without being named";
    host_names(walk, top, "hosts", "[\"box.lan\"]", hint)
}

/// Names of hosts, in lower case.
pub(super) fn host_names(
    walk: &mut Walk<'_>,
    section: &Section<'_, '_>,
    key: &str,
    example: &str,
    hint: &str,
) -> Vec<String> {
    let mut hosts = Vec::new();
    for At { value, spot } in section.texts(walk, key, example).unwrap_or_default() {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if !value.bytes().all(plain) {
            walk.problem(&spot, format_args!("{} is not a host name", shown(&value)), hint);
        } else {
            hosts.push(value.to_ascii_lowercase());
        }
    }
    hosts
}

/// `[cors] origins`: `*`, or `scheme://host[:port]`.
pub(super) fn cors_origins(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Vec<String> {
    let Some(section) = top.table(walk, "cors", &schema::CORS) else { return Vec::new() };
    let mut origins = Vec::new();
    for At { value, spot } in section.texts(walk, "origins", "[\"https://app.lan\"]").unwrap_or_default() {
        if value == "*" {
            walk.warn(
                &spot,
                "every web page that a browser on this network opens may call edgeward",
                "name the pages' origins",
            );
            origins.push(value);
        } else if is_origin(&value) {
            origins.push(value.to_ascii_lowercase());
        } else {
            let hint =
                "write scheme://host or scheme://host:port as browsers send it, without a path or a last /";
            walk.problem(&spot, format_args!("{} is not an origin", shown(&value)), hint);
        }
    }
    origins
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    !scheme.is_empty()
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        && !authority.is_empty()
        && authority.bytes().all(good)
}
