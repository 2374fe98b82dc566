//! `storage.remote`: where blobs are when they are not here.

use std::net::{IpAddr, SocketAddr};

use tonic::transport::Uri;

use super::super::checked::RemoteStorage;
use super::super::raw::{RawEmbedded, RawRemote};
use super::{Checker, MIB, SECOND};
use crate::rev2::instance_name;

impl Checker {
    pub(super) fn remote_storage(
        &mut self,
        raw: Option<RawRemote>,
        embedded: &RawEmbedded,
        listen: SocketAddr,
    ) -> Option<RemoteStorage> {
        let raw = raw?;
        if *embedded != RawEmbedded::default() {
            self.wrong(
                "storage.embedded",
                "blobs are either here or with storage.remote; keep one of the two",
            );
        }
        let address = raw.address.unwrap_or_default();
        match host_and_port(&address) {
            None => {
                let text = format!("address {address:?} is none; give \"grpc://HOST:PORT\"");
                self.wrong("storage.remote", text);
            }
            Some((host, port)) if is_at(&host, port, listen) => {
                let text = format!(
                    "address {address:?} is this server's own (listen); name the server that has the blobs"
                );
                self.wrong("storage.remote", text);
            }
            Some(_) => {}
        }
        if let Some(Err(status)) = raw.instance_name.as_deref().map(instance_name::validate) {
            self.wrong("storage.remote.instance_name", status.message());
        }
        Some(RemoteStorage {
            address,
            instance_name: raw.instance_name,
            patience: self.timer("storage.remote.patience", raw.patience, 20 * SECOND),
            // 0 is allowed: everything is asked for each time.
            small_blob_cache_bytes: raw.small_blob_cache.map_or(64 * MIB, |size| size.0),
        })
    }
}

/// What to connect to; `None` if it is not all there, or something follows that would have no effect.
fn host_and_port(address: &str) -> Option<(String, u16)> {
    let rest = address.strip_prefix("grpc://").or_else(|| address.strip_prefix("http://"))?;
    let uri: Uri = format!("http://{rest}").parse().ok()?;
    let is_all = matches!(uri.path_and_query().map(|p| p.as_str()), None | Some("" | "/"));
    let host = uri.host().filter(|host| !host.is_empty() && is_all)?;
    Some((host.trim_matches(['[', ']']).to_owned(), uri.port_u16().filter(|port| *port != 0)?))
}

/// Calls to there would come back here, each bringing the next. Names are not looked up.
fn is_at(host: &str, port: u16, listen: SocketAddr) -> bool {
    if port != listen.port() {
        return false;
    }
    let is_here = |ip: IpAddr| ip == listen.ip() || listen.ip().is_unspecified() && ip.is_loopback();
    match host {
        "localhost" => listen.ip().is_loopback() || listen.ip().is_unspecified(),
        _ => host.parse().is_ok_and(is_here),
    }
}
