//! TLS towards targets: which authorities are trusted, and the handshake.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fault;
use crate::cause::{Cause, Failure};
use crate::config::Roots;

/// HTTP/2's name in ALPN.
const H2: &[u8] = b"h2";
/// HTTP/1.1's name in ALPN.
const HTTP1: &[u8] = b"http/1.1";

/// One target's side of TLS.
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// For `host`, a name or an IP literal without brackets, with a configuration from [`Trust`].
    pub(super) fn new(config: Arc<ClientConfig>, host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("`{host}` is no name that a certificate can be for"))?;
        Ok(Tls { config, name })
    }

    /// The handshake. True: both sides agreed on HTTP/2.
    pub(super) async fn handshake(&self, tcp: TcpStream) -> Result<(TlsStream<TcpStream>, bool), Failure> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), tcp).await.map_err(|error| {
            let failure = fault::of_io(&error);
            match failure.cause {
                Cause::Tls | Cause::Clock => failure,
                cause => Failure::with(cause, &format!("in the TLS handshake: {}", failure.detail)),
            }
        })?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
        Ok((stream, http2))
    }
}

/// The trust stores in use, each built once; their targets share one session cache.
#[derive(Default)]
pub(super) struct Trust {
    built: Vec<(Roots, ClientConfig)>,
}

impl Trust {
    /// The configuration for `roots`; `http2` offers HTTP/2 before HTTP/1.1.
    pub(super) fn config(&mut self, roots: &Roots, http2: bool) -> Result<Arc<ClientConfig>, String> {
        let at = match self.built.iter().position(|(known, _)| known == roots) {
            Some(at) => at,
            None => {
                self.built.push((roots.clone(), build(store(roots)?)?));
                self.built.len() - 1
            }
        };
        let mut config = self.built[at].1.clone();
        config.alpn_protocols = if http2 { vec![H2.to_vec(), HTTP1.to_vec()] } else { vec![HTTP1.to_vec()] };
        Ok(Arc::new(config))
    }
}

/// The program's one wall clock, for certificates.
#[derive(Debug)]
struct Wall;

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        crate::time::wall().duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

fn build(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(Wall))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

fn store(roots: &Roots) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::Bundled => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = store.add_parsable_certificates(found.certs);
            if added == 0 {
                let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
                return Err(format!("the operating system's certificate store is empty{why}"));
            }
        }
        Roots::File(path) => {
            let certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| error.to_string())?;
                store.add(certificate).map_err(|error| error.to_string())?;
            }
            if store.is_empty() {
                return Err("no certificate in it".to_owned());
            }
        }
    }
    Ok(store)
}
