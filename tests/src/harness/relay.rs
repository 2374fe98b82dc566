//! A wire between client and server that can be cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

/// Passes bytes on between its port and a server until it is cut; knows no protocol. Dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    cut: broadcast::Sender<()>,
    mute: broadcast::Sender<()>,
    is_down: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    /// Listens on a port of the loopback, for the server at `target` (`IP:PORT`).
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(target: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port is free")?;
        let address = listener.local_addr()?;
        let ((cut, _), (mute, _)) = (broadcast::channel(1), broadcast::channel(1));
        let is_down = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(accept(listener, target, cut.clone(), mute.clone(), is_down.clone()));
        Ok(Self { address, cut, mute, is_down, task })
    }

    /// `IP:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections that there are; new ones are taken as before.
    ///
    /// # Errors
    /// There was none.
    pub fn cut(&self) -> anyhow::Result<()> {
        self.cut.send(()).map(drop).context("there is no connection to cut")
    }

    /// Ends all connections and takes none until it is [`Self::up`] again.
    pub fn down(&self) {
        self.is_down.store(true, Ordering::Relaxed);
        // There may be none.
        _ = self.cut.send(());
    }

    /// Nothing comes through the connections that there are, which stay open, as when a machine vanished. New ones are
    /// taken as before.
    pub fn mute(&self) {
        // There may be none.
        _ = self.mute.send(());
    }

    /// Takes connections again.
    pub fn up(&self) {
        self.is_down.store(false, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: String,
    cut: broadcast::Sender<()>,
    mute: broadcast::Sender<()>,
    is_down: Arc<AtomicBool>,
) {
    while let Ok((client, _)) = listener.accept().await {
        if is_down.load(Ordering::Relaxed) {
            continue;
        }
        let (target, mut cut, mut mute) = (target.clone(), cut.subscribe(), mute.subscribe());
        tokio::spawn(async move {
            let pass = std::pin::pin!(pass(client, &target));
            tokio::select! {
                biased;
                _ = cut.recv() => {}
                _ = mute.recv() => {
                    _ = cut.recv().await;
                }
                // How a connection ends is for its two sides to judge.
                _ = pass => {}
            }
        });
    }
}

async fn pass(mut client: TcpStream, target: &str) -> std::io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}
