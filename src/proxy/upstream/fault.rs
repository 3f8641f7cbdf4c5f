//! From the errors of sockets, TLS and HTTP to a [`Cause`].

use std::error::Error;
use std::io;

use rustls::CertificateError;

use crate::cause::{Cause, Failure};

/// An error on an open connection, or while one is made.
pub(super) fn of_io(error: &io::Error) -> Failure {
    if let Some(tls) = error.get_ref().and_then(|inner| source::<rustls::Error>(inner)) {
        return of_tls(tls);
    }
    Failure::with(cause_of(error), &error.to_string())
}

fn cause_of(error: &io::Error) -> Cause {
    use io::ErrorKind as Kind;
    match error.kind() {
        // ENOENT and EACCES come from Unix sockets only: no server, or not for us.
        Kind::ConnectionRefused | Kind::NotFound | Kind::PermissionDenied => Cause::Refused,
        Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown | Kind::AddrNotAvailable => {
            Cause::Unreachable
        }
        Kind::UnexpectedEof => Cause::Closed,
        // How hyper's body decoders say that the chunked framing is broken.
        Kind::InvalidData | Kind::InvalidInput => Cause::Protocol,
        _ if is_exhausted(error) => Cause::Exhausted,
        _ => Cause::Reset,
    }
}

/// ENOMEM, ENFILE, EMFILE, ENOBUFS: this process, or this box, is out of something.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105))
}

fn of_tls(error: &rustls::Error) -> Failure {
    use CertificateError as Bad;
    let hint = match error {
        // Of a server that renews in time the certificate is always valid, by a clock that is right.
        rustls::Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. })
        | rustls::Error::FailedToGetCurrentTime => {
            return Failure::with(Cause::Clock, &error.to_string());
        }
        rustls::Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "the certificate has expired, or this box's clock is wrong"
        }
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer) => {
            "the certificate is from an authority that is not trusted here; see ca_file and roots"
        }
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS",
        _ => return Failure::with(Cause::Tls, &error.to_string()),
    };
    Failure::with(Cause::Tls, &format!("{hint}: {error}"))
}

/// An error of an HTTP/1 connection, before or after the response's head.
pub(super) fn of_http1(error: &hyper::Error) -> Failure {
    if let Some(io) = source::<io::Error>(error) {
        return of_io(io);
    }
    let cause = if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        Cause::Closed
    } else {
        Cause::Protocol
    };
    Failure::with(cause, &error.to_string())
}

/// An error of an HTTP/2 stream, and whether the server says that it did not look at the request.
pub(super) fn of_http2(error: &hyper::Error) -> (Failure, bool) {
    let Some(h2) = source::<h2::Error>(error) else {
        // The ping time-out, a connection that ended before it took the request, or an io error.
        let failure = source::<io::Error>(error)
            .map_or_else(|| Failure::with(Cause::Closed, &error.to_string()), of_io);
        return (failure, error.is_canceled());
    };
    if let Some(io) = h2.get_io() {
        return (of_io(io), false);
    }
    let refused = h2.is_reset() && h2.is_remote() && h2.reason() == Some(h2::Reason::REFUSED_STREAM);
    // RFC 9113 section 6.8: h2 gives this to streams above the last one that GOAWAY names, and to new ones.
    let gone = h2.is_go_away() && h2.is_remote();
    let cause = match h2.reason() {
        _ if gone => Cause::Closed,
        _ if h2.is_library() => Cause::Protocol,
        Some(h2::Reason::NO_ERROR | h2::Reason::CANCEL) => Cause::Closed,
        _ => Cause::Reset,
    };
    (Failure::with(cause, &h2.to_string()), refused || gone)
}

fn source<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
