//! A wire between client and server that can be cut.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

/// Passes bytes on between its port and a server until it is cut; knows no protocol. Dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    cut: broadcast::Sender<()>,
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
        let (cut, _) = broadcast::channel(1);
        let task = tokio::spawn(accept(listener, target, cut.clone()));
        Ok(Self { address, cut, task })
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
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: String, cut: broadcast::Sender<()>) {
    while let Ok((client, _)) = listener.accept().await {
        let (target, mut cut) = (target.clone(), cut.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                // How a connection ends is for its two sides to judge.
                _ = pass(client, &target) => {}
                _ = cut.recv() => {}
            }
        });
    }
}

async fn pass(mut client: TcpStream, target: &str) -> std::io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}
