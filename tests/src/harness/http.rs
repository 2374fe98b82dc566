//! One request over plain HTTP.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The headers as they came, with lower-case names.
    pub headers: String,
    /// The body; empty for HEAD.
    pub body: String,
}

/// Asks for a path on a connection of its own.
///
/// # Errors
/// Nothing listens there, or what comes back is not HTTP.
pub async fn http(address: SocketAddr, method: &str, path: &str) -> anyhow::Result<HttpAnswer> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no HTTP: {text:?}"))?;
    let (line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(HttpAnswer {
        status: status.with_context(|| format!("no status: {line:?}"))?,
        headers: headers.to_lowercase(),
        body: body.to_owned(),
    })
}

/// The value of one sample of a scrape, by its name and labels as they are written; `None`: there is none.
pub fn sample(scrape: &str, series: &str) -> Option<f64> {
    let line = scrape.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.parse().ok()
}
