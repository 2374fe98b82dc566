//! Workers as processes of their own.

use super::clients::Clients;
use super::process::Running;
use super::server::Server;

/// Starts a worker in the clients' root for a server in there, with further arguments.
///
/// # Errors
/// It can't be started.
pub fn start_worker(
    clients: &Clients,
    server: &Server,
    name: &str,
    further: &[&str],
) -> anyhow::Result<Running> {
    let (binary, address, folder) = (clients.install()?, server.address(), server.file_inside(name));
    let words =
        [&binary, "worker", "--scheduler", &address, "--name", name, "--work-dir", &folder, "--concurrency"];
    Running::start(clients.command(&[&words[..], &["2"], further].concat()))
}
