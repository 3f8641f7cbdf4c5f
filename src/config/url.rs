//! Target URLs: what is one, where it probably is, and how each kind's base path is written.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use super::value::{Fault, shown};
use super::{Kind, Place, TargetUrl};
use crate::limits::SOCKET_PATH_BYTES;

/// Endings that people paste with the base they belong to.
const ENDPOINTS: &[&str] = &[
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/responses",
    "/models",
    "/messages",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/tags",
];

/// Reads `text` as the URL of a target of this kind. `kind` is `None` where the kind itself is a mistake.
///
/// # Errors
/// What is wrong. A URL that has credentials or a query is not repeated: it may hold a key.
pub(super) fn parse(text: &str, kind: Option<Kind>) -> Result<TargetUrl, Fault> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket(path);
    }
    let (https, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
        _ if hides_a_secret(text) => return Err(secret_fault(text)),
        Some((scheme, _)) => return Err(wrong(text, format!("it knows no {}", shown(scheme)), None)),
        None => {
            let hint = format!("write http://{}", text.trim_start_matches('/'));
            return Err(wrong(
                text,
                "it has no http:// before it",
                (authority(text).is_ok()).then_some(hint),
            ));
        }
    };
    if hides_a_secret(rest) {
        return Err(secret_fault(rest));
    }
    let (host_port, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let (host, port) = authority(host_port).map_err(|why| wrong(text, why, None))?;
    let port = port.unwrap_or(if https { 443 } else { 80 });
    let base = base(path, kind).map_err(|(why, hint)| wrong(text, why, hint))?;
    Ok(if https { TargetUrl::Https { host, port, base } } else { TargetUrl::Http { host, port, base } })
}

fn wrong(text: &str, why: impl fmt::Display, hint: Option<String>) -> Fault {
    let hint =
        hint.unwrap_or_else(|| "write http://host:port, https://host/base or unix:/path/to.sock".to_owned());
    Fault::new(format!("{} is not a URL this program can reach: {why}", shown(text)), hint)
}

fn hides_a_secret(rest: &str) -> bool {
    rest.contains(['?', '#', '@'])
}

fn secret_fault(rest: &str) -> Fault {
    if rest.contains('@') {
        Fault::new(
            "has a user or a password in it",
            "take them out, and give the key as key = { credential = \"…\" }",
        )
    } else {
        Fault::new(
            "has a query or a fragment",
            "take everything from the ? or # on away; a key goes into key = { credential = \"…\" }",
        )
    }
}

fn socket(path: &str) -> Result<TargetUrl, Fault> {
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(Fault::new("is not the path of a socket", "write unix:/path/to.sock, from the root on"));
    }
    if path.len() > SOCKET_PATH_BYTES {
        return Err(Fault::new(
            format!("is a socket path longer than {SOCKET_PATH_BYTES} bytes, which Linux refuses"),
            "give the socket a shorter path",
        ));
    }
    Ok(TargetUrl::Unix { path: PathBuf::from(path) })
}

/// `host`, `host:port` or `[v6]:port`.
fn authority(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("an IPv6 address needs its closing bracket")?;
        host.parse::<Ipv6Addr>().map_err(|_| "what is in the brackets is no IPv6 address")?;
        match after {
            "" => (host, None),
            _ => (host, Some(after.strip_prefix(':').ok_or("after the bracket only a port may follow")?)),
        }
    } else {
        match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => return Err("an IPv6 address goes into brackets"),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err("it names no host");
    }
    let v6 = host.contains(':');
    if !v6 && !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        return Err("its host has characters that no host name has");
    }
    let port = match port {
        None => None,
        Some(port) => match port.parse() {
            Ok(0) | Err(_) => return Err("its port is not a number from 1 to 65535"),
            Ok(port) => Some(port),
        },
    };
    Ok((host.to_ascii_lowercase(), port))
}

fn base(path: &str, kind: Option<Kind>) -> Result<String, (&'static str, Option<String>)> {
    let path = path.trim_end_matches('/');
    if !path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(("its path has a space or another character that needs escaping", None));
    }
    if path.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(("its path has an empty or dotted part", None));
    }
    if let Some(endpoint) = ENDPOINTS.iter().find(|endpoint| path.ends_with(**endpoint)) {
        return Err(("it is an endpoint, not a server", Some(format!("leave {endpoint} out"))));
    }
    Ok(match kind {
        // What every SDK's base URL ends with.
        Some(Kind::Openai) if path.is_empty() => "/v1".to_owned(),
        Some(Kind::Openai) | None => path.to_owned(),
        // These have paths outside /v1 as well; theirs is the server's root.
        Some(Kind::Ollama | Kind::Vllm | Kind::Llamacpp | Kind::Anthropic) => {
            path.strip_suffix("/v1").unwrap_or(path).to_owned()
        }
        Some(Kind::Gemini) => path.strip_suffix("/v1beta").unwrap_or(path).to_owned(),
    })
}

impl TargetUrl {
    /// The place that the address itself tells of: loopback and sockets are local; private addresses,
    /// `*.local` and names without a dot, which only a local resolver knows, are on the LAN.
    #[must_use]
    pub fn usual_place(&self) -> Place {
        let (TargetUrl::Http { host, .. } | TargetUrl::Https { host, .. }) = self else {
            return Place::Local;
        };
        if let Ok(ip) = host.parse::<IpAddr>() {
            return match ip.to_canonical() {
                ip if ip.is_loopback() || ip.is_unspecified() => Place::Local,
                IpAddr::V4(ip) if is_lan_v4(ip) => Place::Lan,
                // fc00::/7 and fe80::/10.
                IpAddr::V6(ip) if ip.is_unique_local() || ip.is_unicast_link_local() => Place::Lan,
                IpAddr::V4(_) | IpAddr::V6(_) => Place::Cloud,
            };
        }
        let host = host.trim_end_matches('.');
        if host == "localhost" || host.ends_with(".localhost") {
            Place::Local
        } else if !host.contains('.')
            || [".local", ".lan", ".home.arpa"].iter().any(|end| host.ends_with(end))
        {
            Place::Lan
        } else {
            Place::Cloud
        }
    }

    /// Whether bytes to it stay on this box, whatever `place` says.
    #[must_use]
    pub fn is_on_this_box(&self) -> bool {
        self.usual_place() == Place::Local
    }

    /// The port, where it has one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            TargetUrl::Http { port, .. } | TargetUrl::Https { port, .. } => Some(*port),
            TargetUrl::Unix { .. } => None,
        }
    }
}

fn is_lan_v4(ip: Ipv4Addr) -> bool {
    // 100.64.0.0/10 is carrier-grade NAT, RFC 6598, and Tailscale's range.
    let shared = ip.octets()[0] == 100 && (64..128).contains(&ip.octets()[1]);
    ip.is_private() || ip.is_link_local() || shared
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port, usual, base) = match self {
            TargetUrl::Unix { path } => return write!(f, "unix:{}", path.display()),
            TargetUrl::Http { host, port, base } => ("http", host, *port, 80, base),
            TargetUrl::Https { host, port, base } => ("https", host, *port, 443, base),
        };
        write!(f, "{scheme}://")?;
        if host.contains(':') {
            write!(f, "[{host}]")?
        } else {
            write!(f, "{host}")?
        }
        if port != usual {
            write!(f, ":{port}")?;
        }
        write!(f, "{base}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_urls_come_back_as_written() {
        for (text, kind, shown) in [
            ("http://127.0.0.1:11434", Kind::Ollama, "http://127.0.0.1:11434"),
            ("http://127.0.0.1:11434/v1/", Kind::Ollama, "http://127.0.0.1:11434"),
            ("http://gpu/llm/v1", Kind::Vllm, "http://gpu/llm"),
            ("https://api.openai.com", Kind::Openai, "https://api.openai.com/v1"),
            ("https://api.openai.com/", Kind::Openai, "https://api.openai.com/v1"),
            (
                "https://generativelanguage.googleapis.com/v1beta",
                Kind::Gemini,
                "https://generativelanguage.googleapis.com",
            ),
            ("HTTPS://API.OpenAI.com:443/v1", Kind::Openai, "https://api.openai.com/v1"),
            ("https://h/v1beta/openai/", Kind::Openai, "https://h/v1beta/openai"),
            ("http://[::1]:8080", Kind::Llamacpp, "http://[::1]:8080"),
            ("http://h:80", Kind::Ollama, "http://h"),
            ("unix:/run/a.sock", Kind::Ollama, "unix:/run/a.sock"),
            ("unix:///run/a.sock", Kind::Ollama, "unix:/run/a.sock"),
        ] {
            let url = parse(text, Some(kind)).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
            assert_eq!(url.to_string(), shown);
            assert_eq!(parse(shown, Some(kind)).as_ref(), Ok(&url), "{shown}");
        }
    }

    #[test]
    fn bad_urls_say_why() {
        for (text, why) in [
            ("htp://h", "it knows no \"htp\""),
            ("127.0.0.1:11434", "no http://"),
            ("", "no http://"),
            ("http://", "no host"),
            ("http://:80", "no host"),
            ("http://h:0", "port"),
            ("http://h:65536", "port"),
            ("http://h:", "port"),
            ("http://a b", "characters"),
            ("http://::1:80", "brackets"),
            ("http://[::1", "closing bracket"),
            ("http://[nope]:1", "no IPv6"),
            ("http://[::1]80", "only a port"),
            ("http://h/a//b", "empty or dotted"),
            ("http://h/a/../b", "empty or dotted"),
            ("http://h/a b", "space"),
            ("https://h/v1/chat/completions", "endpoint"),
            ("http://u:hunter2@h", "user or a password"),
            ("u:hunter2@h", "user or a password"),
            ("http://h/?key=hunter2", "query"),
            ("h?key=hunter2", "query"),
            ("ftp://h/?key=hunter2", "query"),
            ("http://h/#hunter2", "fragment"),
            ("unix:relative", "path of a socket"),
            ("unix:", "path of a socket"),
        ] {
            let fault = parse(text, Some(Kind::Openai)).expect_err(text);
            assert!(fault.what.contains(why), "{text}: {}", fault.what);
            assert!(!format!("{fault:?}").contains("hunter2"), "{fault:?} shows a secret");
        }
        let long = format!("unix:/{}", "a".repeat(SOCKET_PATH_BYTES));
        assert!(parse(&long, None).expect_err("too long").what.contains("107"));
        let hint = parse("box:11434", None).expect_err("no scheme").hint;
        assert_eq!(hint.as_deref(), Some("write http://box:11434"));
    }

    #[test]
    fn places() {
        for (url, place) in [
            ("http://127.0.0.1:1", Place::Local),
            ("http://127.9.9.9:1", Place::Local),
            ("http://localhost", Place::Local),
            ("http://a.localhost", Place::Local),
            ("http://[::1]", Place::Local),
            ("http://[::ffff:127.0.0.1]", Place::Local),
            ("unix:/a", Place::Local),
            ("http://10.1.2.3", Place::Lan),
            ("http://172.31.0.1", Place::Lan),
            ("http://192.168.1.1", Place::Lan),
            ("http://169.254.1.1", Place::Lan),
            ("http://100.64.0.1", Place::Lan),
            ("http://[fd00::1]", Place::Lan),
            ("http://[fe80::1]", Place::Lan),
            ("http://box.local", Place::Lan),
            ("http://box", Place::Lan),
            ("http://172.32.0.1", Place::Cloud),
            ("http://100.128.0.1", Place::Cloud),
            ("https://api.openai.com", Place::Cloud),
            ("https://1.1.1.1", Place::Cloud),
            ("https://localhost.example.com", Place::Cloud),
            ("https://[2606:4700::1]", Place::Cloud),
        ] {
            assert_eq!(parse(url, None).expect(url).usual_place(), place, "{url}");
        }
    }
}
