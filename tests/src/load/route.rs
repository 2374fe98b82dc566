//! RouteAction: the router against the same messages echoed, in one run, turn about.
//!
//! All routers are asked what costs them most of what is usual: actions as Buck2 sends them, whose platform is in their
//! Command, which is in memory. Closed loop: so many callers, each with one call under way. Open loop: so many calls a
//! second, whether or not those before them have ended, so that a slow answer holds back none of those that are measured.
use super::{CpuClock, Server};
use crate::fake_client::{FakeClient, connect, digest_of};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use pointsman_proto::{
    action_router::RouteActionRequest,
    remoteactionrouter::action_router_client::ActionRouterClient,
    rev2::{
        Action, Command, Platform, RequestMetadata, command::EnvironmentVariable, digest_function,
        platform::Property,
    },
};
use prost::Message as _;
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::sleep};
use tonic::transport::Channel;

/// Arguments of each Command, and variables of its environment: a compiler's.
const ARGUMENTS: usize = 60;
const VARIABLES: usize = 15;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct RouteSettings {
    /// Callers of the closed loop.
    pub callers: usize,
    /// HTTP/2 connections that they share; Buildbarn's scheduler has one.
    pub connections: usize,
    /// Calls a second of the open loop.
    pub rate: u32,
    /// Distinct Commands, all of them read before.
    pub commands: usize,
    /// Length of each measurement.
    pub window: Duration,
    /// Time before that.
    pub warm_up: Duration,
    /// How often all of it is done.
    pub rounds: usize,
}

/// What one server did in one window.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Calls in a second.
    pub rate: f64,
    /// Half of the calls took no longer, in microseconds.
    pub p50_us: f64,
    /// 99 of a hundred took no longer.
    pub p99_us: f64,
    /// Processor time of the server for one call, in microseconds.
    pub cpu_us: f64,
}

/// One round: echo and router, closed and open.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Of the server that echoes.
    pub echo: [Seen; 2],
    /// Of the router.
    pub router: [Seen; 2],
}

impl Round {
    /// The router's share of the calls that echo answers, closed loop.
    pub fn throughput(&self) -> f64 {
        self.router[0].rate / self.echo[0].rate
    }

    /// How many times echo's the router's p99 is, open loop.
    pub fn tail(&self) -> f64 {
        self.router[1].p99_us / self.echo[1].p99_us
    }
}

/// Measures. `own` is this program, which echoes, `server` Pointsman's.
///
/// # Errors
/// A server can't be started, or a call fails.
pub async fn route(own: &Path, server: &Path, settings: &RouteSettings) -> Result<Vec<Round>> {
    let cas = Server::pointsman(server, &super::Settings::default(), &[]).await?;
    let (to_router, to_echo) = requests(&cas, settings).await?;
    let echo = Server::echo(own, &[]).await?;
    let router = Server::router(server, cas.address()).await?;
    let mut rounds = Vec::new();
    for _ in 0..settings.rounds {
        let mut seen = Vec::new();
        for open in [false, true] {
            for (server, requests) in [(&echo, &to_echo), (&router, &to_router)] {
                seen.push(measure(server, requests, settings, open).await?);
            }
        }
        rounds.push(Round { echo: [seen[0], seen[2]], router: [seen[1], seen[3]] });
    }
    for server in [echo, router, cas] {
        server.kill().await?;
    }
    Ok(rounds)
}

type Requests = Arc<[RouteActionRequest]>;

/// For the router, and for echo: that gets what the router gives, so that its answers are as large.
async fn requests(cas: &Server, settings: &RouteSettings) -> Result<(Requests, Requests)> {
    ensure!(
        settings.commands > 0 && settings.callers > 0 && settings.connections > 0,
        "nothing to call with"
    );
    let commands: Vec<Bytes> = (0..settings.commands).map(|n| command(n).encode_to_vec().into()).collect();
    FakeClient::connect(cas.address()).await?.upload(commands.clone()).await?;
    let request = |action: Action| RouteActionRequest {
        instance_name: "main".into(),
        digest_function: digest_function::Value::Sha256.into(),
        action: Some(action.encode_to_vec().into()),
        request_metadata: Some(RequestMetadata {
            tool_invocation_id: "8f2e9a5c-0b7e-4f0c-9a2e-0d5f3c1b7a66".into(),
            ..RequestMetadata::default()
        }),
    };
    let actions = commands.iter().map(|command| Action {
        command_digest: Some(digest_of(command)),
        input_root_digest: Some(digest_of(b"root")),
        ..Action::default()
    });
    let to_router = actions.clone().map(request).collect();
    let to_echo = actions.map(|action| request(Action { platform: Some(platform()), ..action })).collect();
    Ok((to_router, to_echo))
}

fn platform() -> Platform {
    let property = |(name, value): (&str, &str)| Property { name: name.into(), value: value.into() };
    let properties =
        [("OSFamily", "linux"), ("container-image", "docker://buckroot-worker"), ("size", "small")];
    Platform { properties: properties.map(property).into() }
}

#[allow(deprecated, reason = "that is where Buck2 puts the platform")]
fn command(n: usize) -> Command {
    let variable =
        |v: usize| EnvironmentVariable { name: format!("VARIABLE_{v:02}"), value: format!("value {v}") };
    Command {
        arguments: (0..ARGUMENTS).map(|a| format!("-Iexternal/package_{n}/include/{a}")).collect(),
        environment_variables: (0..VARIABLES).map(variable).collect(),
        output_paths: vec![format!("buck-out/v2/gen/{n}.o")],
        platform: Some(platform()),
        ..Command::default()
    }
}

async fn measure(server: &Server, requests: &Requests, settings: &RouteSettings, open: bool) -> Result<Seen> {
    let mut channels = Vec::new();
    for _ in 0..settings.connections {
        channels.push(ActionRouterClient::new(connect(server.address()).await?));
    }
    // Once each, so that all of them are in memory.
    for request in requests.iter() {
        let answer = channels[0].clone().route_action(request.clone()).await?;
        ensure!(answer.metadata().get("pointsman-degraded").is_none(), "an answer without the policies");
    }
    let calls = Calls { channels, requests: requests.clone() };
    let clock = server.cpu_clock()?;
    run(&calls, settings, settings.warm_up, open).await?;
    let (cpu, begun) = (clock.now()?, Instant::now());
    let latency = run(&calls, settings, settings.window, open).await?;
    let (window, cpu) = (begun.elapsed(), CpuClock::now(&clock)? - cpu);
    ensure!(!latency.is_empty(), "no call ended in {window:?}");
    let us = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Seen {
        rate: latency.len() as f64 / window.as_secs_f64(),
        p50_us: us(0.5),
        p99_us: us(0.99),
        cpu_us: cpu.as_secs_f64() * 1e6 / latency.len() as f64,
    })
}

/// Who calls, and with what; in turn.
#[derive(Clone)]
struct Calls {
    channels: Vec<ActionRouterClient<Channel>>,
    requests: Requests,
}

impl Calls {
    /// Makes a call; how long it took, in nanoseconds.
    async fn make(&self, n: usize) -> Result<u64> {
        let mut client = self.channels[n % self.channels.len()].clone();
        let request = self.requests[n % self.requests.len()].clone();
        let sent = Instant::now();
        client.route_action(request).await.context("a call failed")?;
        Ok(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

async fn run(calls: &Calls, settings: &RouteSettings, time: Duration, open: bool) -> Result<Histogram<u64>> {
    let until = Instant::now() + time;
    if open {
        open_loop(calls, settings.rate, until).await
    } else {
        closed_loop(calls, settings.callers, until).await
    }
}

async fn closed_loop(calls: &Calls, callers: usize, until: Instant) -> Result<Histogram<u64>> {
    let mut running = JoinSet::new();
    for caller in 0..callers {
        let calls = calls.clone();
        running.spawn(async move {
            let mut latency = Histogram::new(3)?;
            let mut n = caller;
            while Instant::now() < until {
                latency.record(calls.make(n).await?)?;
                n += callers;
            }
            anyhow::Ok(latency)
        });
    }
    let mut all = Histogram::new(3)?;
    while let Some(latency) = running.join_next().await {
        all.add(latency??)?;
    }
    Ok(all)
}

async fn open_loop(calls: &Calls, rate: u32, until: Instant) -> Result<Histogram<u64>> {
    let begun = Instant::now();
    let mut running = JoinSet::new();
    let mut latency = Histogram::new(3)?;
    let mut sent = 0;
    while Instant::now() < until {
        let due = (begun.elapsed().as_secs_f64() * f64::from(rate)) as usize;
        for n in sent..due {
            let calls = calls.clone();
            running.spawn(async move { calls.make(n).await });
        }
        sent = due.max(sent);
        while let Some(ended) = running.try_join_next() {
            latency.record(ended??)?;
        }
        // The timer's own grain.
        sleep(Duration::from_millis(1)).await;
    }
    while let Some(ended) = running.join_next().await {
        latency.record(ended??)?;
    }
    Ok(latency)
}

/// The figures for people.
pub fn route_table(rounds: &[Round]) -> String {
    let mut text = String::from(
        "round         closed: calls/s  of echo  CPU us/call    open: calls/s   p50 us   p99 us  of echo's\n",
    );
    for (n, round) in rounds.iter().enumerate() {
        for (name, seen, ratios) in
            [("echo", &round.echo, [1.0, 1.0]), ("router", &round.router, [round.throughput(), round.tail()])]
        {
            let [closed, open] = seen;
            text += &format!(
                "{:>3} {name:<8} {:>16.0} {:>8.2} {:>12.1} {:>16.0} {:>8.0} {:>8.0} {:>10.2}\n",
                n + 1,
                closed.rate,
                ratios[0],
                closed.cpu_us,
                open.rate,
                open.p50_us,
                open.p99_us,
                ratios[1],
            );
        }
    }
    text
}

/// The figures for programs.
pub fn route_json(rounds: &[Round]) -> Value {
    let seen = |seen: &Seen| json!({ "calls_per_second": seen.rate, "p50_us": seen.p50_us, "p99_us": seen.p99_us, "cpu_us": seen.cpu_us });
    let both = |[closed, open]: &[Seen; 2]| json!({ "closed": seen(closed), "open": seen(open) });
    let round = |round: &Round| {
        json!({
            "echo": both(&round.echo), "router": both(&round.router),
            "throughput_of_echo": round.throughput(), "p99_of_echo": round.tail(),
        })
    };
    rounds.iter().map(round).collect()
}
