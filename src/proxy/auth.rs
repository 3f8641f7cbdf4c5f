//! Who may ask: client keys, the Host header, operators.

use std::net::SocketAddr;

use http::{HeaderMap, header};
use ring::digest;
use subtle::ConstantTimeEq;

use crate::config::{ClientKey, Config, Egress, Priority};
use crate::dialect::reply::Problem;

/// An authenticated (or anonymous) client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its key's SHA-256: who it is, also after a reload that moved its key.
    pub key: Option<[u8; 32]>,
    /// Its key's name.
    pub name: Option<String>,
    /// Whether it may use `/edgeward/*`.
    pub operator: bool,
    /// How far its prompts may go.
    pub local_only: Egress,
    /// Who is let in first when a target's queue is not empty.
    pub priority: Priority,
}

/// Finds the client of a request.
///
/// # Errors
/// 401 where a key is needed and none, or an unknown one, was given.
pub fn client(config: &Config, headers: &HeaderMap, peer: Option<SocketAddr>) -> Result<Client, Problem> {
    let local = on_the_box(headers, peer);
    let given = presented(headers);
    if let Some(key) = given.and_then(|given| matching(&config.keys, given)) {
        let operator = key.operator || local;
        let (local_only, priority) = (key.local_only, key.priority);
        return Ok(Client {
            key: Some(key.sha256),
            name: Some(key.name.clone()),
            operator,
            local_only,
            priority,
        });
    }
    if config.keys.is_empty() || config.allow_anonymous {
        return Ok(Client { operator: local, ..Client::default() });
    }
    let what = if given.is_some() { "the key is not one of this server's" } else { "a key is needed" };
    Err(Problem::new(
        401,
        "invalid_api_key",
        format!(
            "{what}: send `Authorization: Bearer …` or `x-api-key: …` with a key that its operator gave you"
        ),
    ))
}

/// Finds who asks for an operators' endpoint: whoever is on the box needs no key for it. A key that is given counts, and
/// a browser's page is not the person before it.
///
/// # Errors
/// As [`client`].
pub fn operator(config: &Config, headers: &HeaderMap, peer: Option<SocketAddr>) -> Result<Client, Problem> {
    let keyed = headers.contains_key(header::AUTHORIZATION) || headers.contains_key("x-api-key");
    if !keyed && !headers.contains_key(header::ORIGIN) && on_the_box(headers, peer) {
        return Ok(Client { operator: true, ..Client::default() });
    }
    client(config, headers, peer)
}

/// Whether the request began on this box: by a loopback peer that does not say that it passes another's on.
fn on_the_box(headers: &HeaderMap, peer: Option<SocketAddr>) -> bool {
    const PASSED_ON: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback())
        && !PASSED_ON.iter().any(|name| headers.contains_key(*name))
}

fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let value = value.as_bytes();
        let (scheme, key) = value.split_at_checked(7)?;
        return scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii());
    }
    headers.get("x-api-key").map(|value| value.as_bytes().trim_ascii())
}

/// Every key is compared, in constant time, so that time tells nothing about which one was near.
fn matching<'k>(keys: &'k [ClientKey], given: &[u8]) -> Option<&'k ClientKey> {
    let digest = digest::digest(&digest::SHA256, given);
    let mut found = None;
    for key in keys {
        if bool::from(key.sha256.as_slice().ct_eq(digest.as_ref())) {
            found = Some(key);
        }
    }
    found
}

/// Refuses a Host that is neither an address, `localhost`, nor configured: a web page whose name was made to
/// resolve to this box (DNS rebinding) would send its own.
///
/// # Errors
/// 400 without a Host, 403 with one that is not known.
pub fn host(config: &Config, headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::new(400, "bad_host", "a request needs exactly one Host header"));
    };
    let text = host.to_str().unwrap_or("");
    if is_known_host(config, text) {
        return Ok(());
    }
    let name: String = text.chars().take(100).collect();
    Err(Problem::new(
        403,
        "unknown_host",
        format!(
            "the name `{name}` is not known to this edgeward; use its IP address, or add the name to `hosts` in its configuration"
        ),
    ))
}

fn is_known_host(config: &Config, host: &str) -> bool {
    let name = if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<std::net::Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'));
    } else {
        host.rsplit_once(':').map_or(host, |(name, _)| name)
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.parse::<std::net::Ipv4Addr>().is_ok() || name == "localhost" || config.hosts.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn config(text: &str) -> Config {
        let env = |name: &str| (name == "K1" || name == "K2").then(|| format!("{name}-0123456789abcdef"));
        crate::config::parse(text, std::path::Path::new("test"), &env).expect(text).config
    }

    fn keyed(key: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", HeaderValue::from_str(key).unwrap());
        headers
    }

    const KEYS: &str =
        "[[key]]\nname = \"one\"\nenv = \"K1\"\n[[key]]\nname = \"two\"\nenv = \"K2\"\noperator = true\n";

    #[test]
    fn operators_are_on_the_box_or_have_an_operators_key() {
        let config = config(KEYS);
        let operator = |peer: &str, key: &str| {
            client(&config, &keyed(key), Some(peer.parse().unwrap())).unwrap().operator
        };
        for (peer, key, wanted) in [
            ("192.168.1.5:1", "K1-0123456789abcdef", false),
            ("192.168.1.5:1", "K2-0123456789abcdef", true),
            ("[fe80::1]:1", "K1-0123456789abcdef", false),
            ("[::ffff:192.168.1.5]:1", "K1-0123456789abcdef", false),
            ("127.0.0.1:1", "K1-0123456789abcdef", true),
            ("[::1]:1", "K1-0123456789abcdef", true),
            ("[::ffff:127.0.0.1]:1", "K1-0123456789abcdef", true),
        ] {
            assert_eq!(operator(peer, key), wanted, "{peer} {key}");
        }
        assert_eq!(client(&config, &keyed("x"), None).unwrap_err().status, 401);
    }

    #[test]
    fn an_operators_endpoint_needs_no_key_on_the_box_and_one_elsewhere() {
        let config = config(KEYS);
        let ask = |peer: &str, name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            if !name.is_empty() {
                headers.insert(name, HeaderValue::from_static(value));
            }
            operator(&config, &headers, Some(peer.parse().unwrap()))
                .map(|client| client.operator)
                .map_err(|p| p.status)
        };
        for (peer, name, value, wanted) in [
            ("127.0.0.1:1", "", "", Ok(true)),
            ("[::1]:1", "", "", Ok(true)),
            ("[::ffff:127.0.0.1]:1", "", "", Ok(true)),
            ("192.168.1.5:1", "", "", Err(401)),
            ("[::ffff:192.168.1.5]:1", "", "", Err(401)),
            ("192.168.1.5:1", "x-api-key", "K1-0123456789abcdef", Ok(false)),
            ("192.168.1.5:1", "x-api-key", "K2-0123456789abcdef", Ok(true)),
            // A wrong key is a mistake that is told, an empty one too.
            ("127.0.0.1:1", "x-api-key", "wrong", Err(401)),
            ("127.0.0.1:1", "authorization", "Bearer", Err(401)),
            // Another's request that a proxy on the box passes on, and a page in a browser here.
            ("127.0.0.1:1", "x-forwarded-for", "203.0.113.9", Err(401)),
            ("127.0.0.1:1", "forwarded", "for=203.0.113.9", Err(401)),
            ("127.0.0.1:1", "x-real-ip", "203.0.113.9", Err(401)),
            ("127.0.0.1:1", "via", "1.1 front", Err(401)),
            ("127.0.0.1:1", "origin", "http://evil.example", Err(401)),
        ] {
            assert_eq!(ask(peer, name, value), wanted, "{peer} {name} {value}");
        }
        let mut headers = keyed("K1-0123456789abcdef");
        headers.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.9"));
        let passed_on = client(&config, &headers, Some("127.0.0.1:1".parse().unwrap())).unwrap();
        assert!(!passed_on.operator, "every key is an operator's only on the box itself");
        // And nowhere else does the box itself need no key.
        assert_eq!(
            client(&config, &HeaderMap::new(), Some("127.0.0.1:1".parse().unwrap())).unwrap_err().status,
            401
        );
    }

    #[test]
    fn anonymous_peers_on_the_network_are_no_operators() {
        let config = config("listen = [\"0.0.0.0:1\"]\nallow_anonymous = true\n");
        let peer = Some("10.0.0.9:1".parse().unwrap());
        assert_eq!(client(&config, &HeaderMap::new(), peer), Ok(Client::default()));
        // A key that nobody configured is no reason to turn a client away that needs none: SDKs insist on one.
        assert_eq!(client(&config, &keyed("sk-anything"), peer), Ok(Client::default()));
    }
}
