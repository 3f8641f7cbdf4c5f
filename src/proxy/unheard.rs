//! What came from clients and is no request for a model: a line at debug, since scanners and mistakes are no trouble.

use std::fmt;
use std::net::SocketAddr;

use http::Method;

use crate::observe;

/// Bytes of a path that an error or a line of the log shows.
const PATH_BYTES: usize = 200;

/// A request was refused before it was known to be for a model.
pub fn refused(method: &Method, path: &str, peer: Option<SocketAddr>, why: &str) {
    let said = format_args!("{method} {} from {}: {why}", beginning(path), Peer(peer));
    observe::fine("A request was refused", None, &said);
}

/// A connection ended in the midst of a request, or spoke no HTTP.
pub fn broke_off(peer: Option<SocketAddr>, error: &dyn fmt::Display) {
    observe::fine("A client's connection broke off", None, &format_args!("{}: {error}", Peer(peer)));
}

/// As much of a path as is shown.
pub fn beginning(path: &str) -> &str {
    path.get(..path.floor_char_boundary(PATH_BYTES)).unwrap_or(path)
}

struct Peer(Option<SocketAddr>);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => peer.fmt(f),
            None => f.write_str("a Unix socket"),
        }
    }
}
