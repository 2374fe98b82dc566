//! buildbox's `recc`: stands before a compiler and sends what it would do.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use pointsman_tests::harness::{Clients, Finished, Relay, Running, Server, Signal, executing};

use super::feature::{Cell, Feature, offered};
use super::support::{
    HELD, Hold, Pools, all_by_sha1, executions, serve, serve_strictly, shows, tells_the_mistyped_property,
};

/// recc.
pub(crate) fn cell(feature: Feature) -> Cell {
    match feature {
        Feature::Builds => offered(builds),
        Feature::ExitCodes => offered(exit_codes),
        Feature::FailureShown => offered(failure_shown),
        Feature::Cached => offered(cached),
        Feature::NotCached => offered(not_cached),
        Feature::BigFiles => offered(big_files),
        Feature::Sha1 => offered(sha1),
        Feature::InstanceName => offered(instance_name),
        Feature::Platform => offered(platform),
        Feature::UnknownProperty => offered(unknown_property),
        Feature::Interrupt => offered(interrupt),
        Feature::CutConnection => offered(cut_connection),
        Feature::Directories => Cell::NotOffered("a compiler writes files"),
        Feature::Compressed => Cell::NotOffered("recc sends blobs as they are"),
        Feature::InlineOutputs => Cell::NotOffered("recc asks for none"),
        Feature::Priority | Feature::Timeout => Cell::NotOffered("recc has no setting for it"),
        Feature::Detached | Feature::Cancel => Cell::NotOffered("recc stays to the end, as a compiler does"),
    }
}

pub(super) const GREET: &[&str] = &["/usr/bin/g++", "-c", "greet.cc", "-o", "greet.o"];

/// `recc` in a sample workspace.
pub(super) struct Recc<'a> {
    clients: &'a Clients,
    folder: String,
    server: String,
}

impl<'a> Recc<'a> {
    async fn new(clients: &'a Clients, server: &Server) -> anyhow::Result<Self> {
        Self::at(clients, server.address()).await
    }

    pub(super) async fn at(clients: &'a Clients, address: String) -> anyhow::Result<Self> {
        let folder = clients.workspace("ws7").await?;
        Ok(Self { clients, folder, server: format!("RECC_SERVER=http://{address}") })
    }

    /// Runs a command through it, with these further variables.
    pub(super) fn start(&self, variables: &[&str], command: &[&str]) -> anyhow::Result<Running> {
        let root = format!("RECC_PROJECT_ROOT={}", self.folder);
        let enter = ["sh", "-c", "cd \"$0\" && exec recc \"$@\"", &self.folder];
        let words = [&["env", &self.server, &root], variables, &enter, command].concat();
        Running::start(self.clients.command(&words))
    }

    async fn run(&self, variables: &[&str], command: &[&str]) -> anyhow::Result<Finished> {
        self.start(variables, command)?.finish().await
    }

    fn file(&self, name: &str) -> PathBuf {
        self.clients.outside(&format!("{}/{name}", self.folder))
    }
}

/// A compiler that takes as long as a `Hold`; recc's own question for the headers, which it asks here, does not. It lies
/// in the server's folder: the path of what belongs to the project would be made relative.
pub(super) fn slow_compiler(server: &Server) -> anyhow::Result<String> {
    let script = format!("#!/bin/sh\ncase $* in *-M*) ;; *) {HELD} ;; esac\nexec /usr/bin/g++ \"$@\"\n");
    std::fs::create_dir(server.file("slow"))?;
    let file = server.file("slow/g++");
    std::fs::write(&file, script)?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))?;
    Ok(server.file_inside("slow/g++"))
}

async fn builds(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let recc = Recc::new(&clients, &server).await?;
    recc.run(&[], GREET).await?.expect_code(0)?;
    recc.run(&[], &["/usr/bin/g++", "-c", "hello.cc", "-o", "hello.o"]).await?.expect_code(0)?;
    let link = ["/usr/bin/g++", "greet.o", "hello.o", "-o", "hello"];
    recc.run(&["RECC_LINK=1"], &link).await?.expect_code(0)?;
    ensure!(executions(&server).await? == 3, "something ran here");
    let hello = clients.run(&[&format!("{}/hello", recc.folder)]).await?.expect_code(0)?;
    ensure!(hello.text == "hello, worker\n", "{}", hello.text);
    Ok(())
}

/// An error that the search for headers, which is done here, does not meet.
const BROKEN: &str = "#warning \"said first\"\nint f() { return undeclared; }\n";
const COMPILE_BROKEN: &[&str] = &["/usr/bin/g++", "-c", "broken.cc", "-o", "broken.o"];

async fn exit_codes(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let recc = Recc::new(&clients, &server).await?;
    std::fs::write(recc.file("broken.cc"), BROKEN)?;
    for _ in 0..2 {
        recc.run(&[], COMPILE_BROKEN).await?.expect_code(1)?;
    }
    ensure!(executions(&server).await? == 2, "a failure was remembered, or found here");
    recc.run(&[], GREET).await?.expect_code(0)?;
    Ok(())
}

async fn failure_shown(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let recc = Recc::new(&clients, &server).await?;
    std::fs::write(recc.file("broken.cc"), BROKEN)?;
    let run = recc.run(&[], COMPILE_BROKEN).await?.expect_code(1)?;
    shows(&run.text, &["said first", "undeclared"])
}

/// Compiles the same three times with these variables; how often the server was asked to execute it.
async fn three_times(clients: &Clients, variables: &[&str]) -> anyhow::Result<usize> {
    let server = serve(clients).await?;
    let recc = Recc::new(clients, &server).await?;
    for _ in 0..3 {
        recc.run(variables, GREET).await?.expect_code(0)?;
        std::fs::remove_file(recc.file("greet.o"))?;
    }
    executions(&server).await
}

async fn cached(clients: Clients) -> anyhow::Result<()> {
    let executed = three_times(&clients, &[]).await?;
    ensure!(executed == 1, "executed {executed} times");
    Ok(())
}

async fn not_cached(clients: Clients) -> anyhow::Result<()> {
    for variable in ["RECC_ACTION_UNCACHEABLE=1", "RECC_SKIP_CACHE=1"] {
        let executed = three_times(&clients, &[variable]).await?;
        ensure!(executed == 3, "with {variable} executed {executed} times");
    }
    Ok(())
}

/// An object file that holds a big file.
async fn big_files(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let recc = Recc::new(&clients, &server).await?;
    std::fs::write(recc.file("big.c"), "__asm__(\".incbin \\\"big_in.bin\\\"\");\n")?;
    let command = ["/usr/bin/gcc", "-c", "big.c", "-o", "big.o"];
    // No compiler tells that it reads it, and recc then wants to be told all.
    let variables = ["RECC_DEPS_OVERRIDE=big.c,big_in.bin", "RECC_OUTPUT_FILES_OVERRIDE=big.o"];
    recc.run(&variables, &command).await?.expect_code(0)?;
    ensure!(executions(&server).await? == 1, "it was compiled here");
    let object = std::fs::read(recc.file("big.o"))?;
    let content = std::fs::read(recc.file("big_in.bin"))?;
    ensure!(object.windows(1000).any(|part| part == &content[..1000]) && object.len() > content.len());
    Ok(())
}

async fn sha1(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let recc = Recc::new(&clients, &server).await?;
    for _ in 0..2 {
        recc.run(&["RECC_CAS_DIGEST_FUNCTION=SHA1"], GREET).await?.expect_code(0)?;
        std::fs::remove_file(recc.file("greet.o"))?;
    }
    ensure!(executions(&server).await? == 1, "it was not found in the cache");
    all_by_sha1(&server).await
}

async fn instance_name(clients: Clients) -> anyhow::Result<()> {
    let executed = three_times(&clients, &["RECC_INSTANCE=a/b"]).await?;
    ensure!(executed == 1, "executed {executed} times");
    let server = serve(&clients).await?;
    let run = Recc::new(&clients, &server).await?.run(&["RECC_INSTANCE=a/blobs/b"], GREET).await?;
    ensure!(run.code() != 0, "{}", run.text);
    shows(&run.text, &["a/blobs/b"])
}

async fn platform(clients: Clients) -> anyhow::Result<()> {
    let pools = Pools::start(&clients).await?;
    let recc = Recc::new(&clients, &pools.server).await?;
    recc.run(&["RECC_REMOTE_PLATFORM_pool=gpu"], GREET).await?.expect_code(0)?;
    pools.all_ran_in("gpu").await
}

async fn unknown_property(clients: Clients) -> anyhow::Result<()> {
    let server = serve_strictly(&clients).await?;
    let recc = Recc::new(&clients, &server).await?;
    let run = recc.run(&["RECC_REMOTE_PLATFORM_OSFamliy=linux"], GREET).await?;
    ensure!(run.code() != 0, "{}", run.text);
    tells_the_mistyped_property(&run.text)
}

/// recc cancels its operation, alone of all clients, so the same command is executed anew.
async fn interrupt(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let recc = Recc::new(&clients, &server).await?;
    let compiler = slow_compiler(&server)?;
    let command = [&[compiler.as_str()], &GREET[1..]].concat();
    let hold = Hold::new(&clients)?;
    let run = recc.start(&[], &command)?;
    executing(server.channel()?).await?;
    run.signal(Signal::INT)?;
    let run = run.finish().await?;
    ensure!(run.code() != 0, "it was not interrupted");
    shows(&run.text, &["cancelled"])?;

    let again = recc.start(&[], &command)?;
    while executions(&server).await? < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(hold);
    again.finish().await?.expect_code(0)?;
    Ok(())
}

/// When it is to try again at all, recc asks after the operation that it had.
async fn cut_connection(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let relay = Relay::start(server.address()).await?;
    let recc = Recc::at(&clients, relay.address()).await?;
    let compiler = slow_compiler(&server)?;
    let hold = Hold::new(&clients)?;
    let command = [&[compiler.as_str()], &GREET[1..]].concat();
    let run = recc.start(&["RECC_RETRY_LIMIT=3"], &command)?;
    executing(server.channel()?).await?;
    relay.cut()?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(hold);
    run.finish().await?.expect_code(0)?;
    ensure!(executions(&server).await? == 1, "it was executed anew");
    Ok(())
}
