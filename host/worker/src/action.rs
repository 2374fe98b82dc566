//! The life of one action on a worker: inputs, run, outputs, action cache.
use crate::{
    cas::{Cas, Store},
    command::{self, EndedBy, Outcome, Spec},
    environment::environment,
    error::Failure,
    inputs::Inputs,
    outputs::{Collected, Wanted},
    paths::{check_relative, create_dirs},
    place::finish_directories,
    sandbox::{Sandbox, Walls, wants_network},
    strategy::{Strategy, strategy},
    usage,
    workdir::BuildDir,
};
use pointsman_digest::DigestFunction;
use pointsman_proto::{
    pack,
    remoteworker::desired_state::Executing,
    rev2::{Action, ActionResult, Command, ExecuteResponse, ExecutedActionMetadata},
    rpc,
};
use prost::Message as _;
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Code;

/// A Command is read into memory. Real ones have kilobytes; with very many outputs, megabytes.
const COMMAND_MAX_BYTES: u64 = 64 << 20;

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Started,
    FetchingInputs,
    Running,
    UploadingOutputs,
}

/// What all actions of a worker share.
pub(crate) struct Executor {
    pub(crate) cas: Arc<Cas>,
    pub(crate) inputs: Inputs,
    pub(crate) instance_name_prefix: String,
    pub(crate) size_class: u32,
    /// What it offers.
    pub(crate) strategies: Vec<Strategy>,
    /// What does `sandboxed`, if that is offered.
    pub(crate) sandbox: Option<Sandbox>,
}

/// One action on its way.
struct Life<'a> {
    executor: &'a Executor,
    dir: &'a BuildDir,
    stage: &'a watch::Sender<Stage>,
    cancel: &'a CancellationToken,
    metadata: ExecutedActionMetadata,
}

/// A cancelled action has no result; whoever cancelled it does not look.
enum Stop {
    Failure(Failure),
    Cancelled,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Executor {
    /// Carries out an action in `dir`, which is empty or absent before and after. `worker` is the worker id
    /// as JSON. After `cancel` it ends as soon as the command is dead, with a result of no use.
    pub(crate) async fn execute(
        &self,
        desired: Executing,
        dir: &BuildDir,
        worker: String,
        stage: &watch::Sender<Stage>,
        cancel: &CancellationToken,
    ) -> ExecuteResponse {
        let metadata = ExecutedActionMetadata {
            worker,
            queued_timestamp: desired.queued_timestamp,
            worker_start_timestamp: now(),
            auxiliary_metadata: desired.auxiliary_metadata.clone(),
            ..Default::default()
        };
        let mut life = Life { executor: self, dir, stage, cancel, metadata };
        let outcome = life.run(&desired).await;
        let cleared = dir.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || cleared.clear()).await {
            tracing::warn!(directory = %dir.path().display(), %error, "could not remove a build directory");
        }
        let (result, status) = match outcome {
            Ok(done) => done,
            Err(Stop::Failure(failure)) => (ActionResult::default(), failure.into_status()),
            Err(Stop::Cancelled) => {
                let failure = Failure::new(Code::Cancelled, "the action was cancelled");
                (ActionResult::default(), failure.into_status())
            }
        };
        let result = life.finish(result);
        ExecuteResponse { result: Some(result), status: Some(status), ..Default::default() }
    }

    fn instance_name(&self, suffix: &str) -> Result<String, Failure> {
        if suffix.split('/').any(str::is_empty) && !suffix.is_empty() {
            return Err(Failure::invalid(format!(
                "the scheduler sent the malformed instance name suffix {suffix:?}"
            )));
        }
        let parts = [self.instance_name_prefix.as_str(), suffix];
        Ok(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/"))
    }
}

impl Life<'_> {
    async fn run(&mut self, desired: &Executing) -> Result<(ActionResult, rpc::Status), Stop> {
        let function = DigestFunction::from_proto(desired.digest_function)
            .map_err(|error| Failure::invalid(error.to_string()))?
            .ok_or_else(|| Failure::invalid("the scheduler named no digest function"))?;
        let instance = self.executor.instance_name(&desired.instance_name_suffix)?;
        let action =
            desired.action.as_ref().ok_or_else(|| Failure::invalid("the scheduler sent no action"))?;
        let timeout = timeout_of(action)?;
        let strategy = strategy(&desired.auxiliary_metadata, &self.executor.strategies)?;

        let _ = self.stage.send(Stage::FetchingInputs);
        self.metadata.input_fetch_start_timestamp = now();
        let (store, command) = self.unless_cancelled(self.fetch_command(instance, function, action)).await?;
        let wanted = Wanted::of(&command)?;
        let directory = self.prepare(&store, action, &command, &wanted).await?;
        self.metadata.input_fetch_completed_timestamp = now();

        let _ = self.stage.send(Stage::Running);
        let environment =
            environment(command.environment_variables, &desired.auxiliary_metadata, self.executor.size_class);
        let walls = self.walls(strategy, action)?;
        let spec = self.spec(command.arguments, environment, directory.clone(), timeout, walls);
        let outcome = command::run(spec, self.cancel).await?;
        self.note_run(&outcome);
        if outcome.ended_by == EndedBy::Cancel {
            return Err(Stop::Cancelled);
        }

        let _ = self.stage.send(Stage::UploadingOutputs);
        self.metadata.output_upload_start_timestamp = now();
        let collected = self.collect(wanted, directory, function).await?;
        let status = status_of(&outcome, timeout, collected.mismatch);
        let mut result = collected.result;
        result.exit_code = usage::exit_code(outcome.used.status);
        self.unless_cancelled(store.write_all(collected.blobs)).await?;
        self.metadata.output_upload_completed_timestamp = now();

        if !action.do_not_cache && status.code == Code::Ok as i32 && result.exit_code == 0 {
            result = self.finish(result);
            self.unless_cancelled(self.cache_result(&store, desired, &result)).await?;
        }
        Ok((result, status))
    }

    async fn fetch_command(
        &self,
        instance: String,
        function: DigestFunction,
        action: &Action,
    ) -> Result<(Store, Command), Failure> {
        let store = self.executor.cas.store(instance, function).await;
        let digest = store.digest("the Command of the action", action.command_digest.as_ref())?;
        if digest.size_bytes() > COMMAND_MAX_BYTES {
            return Err(Failure::invalid(format!(
                "the Command {} is larger than {COMMAND_MAX_BYTES} bytes, the most that is read",
                digest.path()
            )));
        }
        let data = store.read(&digest).await?.ok_or_else(|| Failure::missing(vec![digest]))?;
        let command = Command::decode(data)
            .map_err(|e| Failure::invalid(format!("{} is not a Command: {e}", digest.path())))?;
        Ok((store, command))
    }

    /// Makes the build directory with all inputs and the directories of the outputs; gives the working
    /// directory.
    async fn prepare(
        &self,
        store: &Store,
        action: &Action,
        command: &Command,
        wanted: &Wanted,
    ) -> Result<PathBuf, Stop> {
        let input_root = store.digest("the input root of the action", action.input_root_digest.as_ref())?;
        let working = check_relative("the working directory", &command.working_directory)?;
        let dir = self.dir.clone();
        blocking("making the build directory", move || dir.create()).await?;
        let root = self.dir.root();
        let prepared = self.executor.inputs.prepare(store, input_root, &root, self.cancel).await?;
        let plan = prepared.ok_or(Stop::Cancelled)?;
        let needed: Vec<PathBuf> = wanted.directories().map(|needed| working.join(needed)).collect();
        let directory = root.join(&working);
        let full = directory.clone();
        blocking("making output directories", move || {
            needed.iter().try_for_each(|needed| create_dirs(&root, needed))?;
            finish_directories(&root, &plan)?;
            if full.is_dir() {
                return Ok(());
            }
            Err(Failure::invalid(format!(
                "the working directory {working:?} is no directory of the input root"
            )))
        })
        .await?;
        Ok(directory)
    }

    /// What a command that runs by that strategy is in.
    fn walls(&self, strategy: Strategy, action: &Action) -> Result<Option<Walls>, Failure> {
        match (strategy, &self.executor.sandbox) {
            (Strategy::Local, _) => Ok(None),
            (Strategy::Sandboxed, Some(sandbox)) => {
                Ok(Some(sandbox.walls(self.dir, wants_network(action.platform.as_ref()))))
            }
            (Strategy::Sandboxed, None) => Err(Failure::new(Code::Internal, "this worker has no sandbox")),
        }
    }

    fn spec(
        &self,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        directory: PathBuf,
        timeout: Option<Duration>,
        walls: Option<Walls>,
    ) -> Spec {
        Spec {
            walls,
            arguments,
            environment,
            directory,
            territory: self.dir.path().to_owned(),
            stdout: self.dir.stdout(),
            stderr: self.dir.stderr(),
            timeout,
        }
    }

    async fn collect(
        &self,
        wanted: Wanted,
        directory: PathBuf,
        function: DigestFunction,
    ) -> Result<Collected, Failure> {
        let (stdout, stderr, cancel) = (self.dir.stdout(), self.dir.stderr(), self.cancel.clone());
        blocking("collecting outputs", move || {
            let mut collected = wanted.collect(&directory, function, &cancel)?;
            let stdout = collected.add_capture(&stdout, function, &cancel)?;
            let stderr = collected.add_capture(&stderr, function, &cancel)?;
            // By digest only: REv2 wants them inline just for those who asked, and a worker can't know.
            collected.result.stdout_digest = Some(stdout.to_proto());
            collected.result.stderr_digest = Some(stderr.to_proto());
            Ok(collected)
        })
        .await
    }

    /// The action succeeded whatever the cache says, so a failure is only logged.
    async fn cache_result(
        &self,
        store: &Store,
        desired: &Executing,
        result: &ActionResult,
    ) -> Result<(), Failure> {
        let Some(digest) = desired.action_digest.clone() else { return Ok(()) };
        if let Err(failure) = store.update_action_result(digest, result.clone()).await {
            tracing::warn!(error = failure.message(), "could not write the action cache");
        }
        Ok(())
    }

    fn note_run(&mut self, outcome: &Outcome) {
        self.metadata.execution_start_timestamp = Some(outcome.started_at.into());
        self.metadata.execution_completed_timestamp = Some(outcome.completed_at.into());
        self.metadata.virtual_execution_duration = Some(usage::duration(outcome.wall));
        self.metadata.auxiliary_metadata.push(pack(&usage::posix(&outcome.used)));
    }

    fn finish(&self, mut result: ActionResult) -> ActionResult {
        let mut metadata = self.metadata.clone();
        metadata.worker_completed_timestamp = now();
        result.execution_metadata.get_or_insert(metadata);
        result
    }

    async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Stop> {
        tokio::select! {
            done = work => Ok(done?),
            () = self.cancel.cancelled() => Err(Stop::Cancelled),
        }
    }
}

async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Failure::join(doing, &e))?
}

/// A time-out outweighs all else. Outputs of the wrong kind count only for a command that claims success:
/// otherwise they would hide its exit code.
fn status_of(outcome: &Outcome, timeout: Option<Duration>, mismatch: Option<Failure>) -> rpc::Status {
    if outcome.ended_by == EndedBy::Timeout {
        let limit = timeout.unwrap_or_default();
        return Failure::new(
            Code::DeadlineExceeded,
            format!("the command did not end within {limit:?} and was killed"),
        )
        .into_status();
    }
    match mismatch {
        Some(failure) if outcome.used.status.success() => failure.into_status(),
        _ => rpc::Status::default(),
    }
}

/// Absent or zero is no limit: schedulers fill in their default before it comes here.
fn timeout_of(action: &Action) -> Result<Option<Duration>, Failure> {
    let Some(timeout) = action.timeout else { return Ok(None) };
    match Duration::try_from(timeout) {
        Ok(Duration::ZERO) => Ok(None),
        Ok(timeout) => Ok(Some(timeout)),
        Err(_) => Err(Failure::invalid(format!("the action has the timeout {timeout:?}"))),
    }
}

fn now() -> Option<prost_types::Timestamp> {
    Some(SystemTime::now().into())
}
