//! What comes out of Execute and WaitExecution.
use anyhow::{Context as _, Result, bail, ensure};
use pointsman_proto::{
    longrunning::{Operation, operation},
    rev2::{ExecuteOperationMetadata, ExecuteResponse, execution_stage},
    unpack,
    v1::RoutingDecision,
};
use prost::Name as _;
use tonic::{Status, Streaming};

/// The stream of an execution. Dropping it is what a client does on Ctrl-C.
#[derive(Debug)]
pub struct Updates {
    stream: Streaming<Operation>,
}

/// One state of an operation.
#[derive(Clone, Debug)]
pub struct Update {
    /// Name for WaitExecution.
    pub name: String,
    /// Stage, digest and partial metadata.
    pub metadata: ExecuteOperationMetadata,
    /// Only in the last update.
    pub response: Option<ExecuteResponse>,
}

/// An execution that came to its end.
#[derive(Clone, Debug)]
pub struct Finished {
    /// All updates in order of arrival, the last one included.
    pub updates: Vec<Update>,
    /// The response of the last one.
    pub response: ExecuteResponse,
}

impl Updates {
    pub(super) fn new(stream: Streaming<Operation>) -> Self {
        Self { stream }
    }

    /// The next message as it came, for those who count every microsecond.
    ///
    /// # Errors
    /// When the server ends the call with an error.
    pub async fn next_operation(&mut self) -> Result<Option<Operation>, Status> {
        self.stream.message().await
    }

    /// The next state; `None` when the server has ended the call.
    ///
    /// # Errors
    /// When the server ends the call with an error, or sends an operation that is none of an execution.
    pub async fn next(&mut self) -> Result<Option<Update>> {
        self.next_operation().await?.map(Update::try_from).transpose()
    }

    /// Waits until a stage is reached, and returns the update that says so.
    ///
    /// # Errors
    /// As [`Updates::next`], and when the call ends before that.
    pub async fn until(&mut self, stage: execution_stage::Value) -> Result<Update> {
        while let Some(update) = self.next().await? {
            if update.metadata.stage() == stage {
                return Ok(update);
            }
            ensure!(update.response.is_none(), "done before {stage:?}: {:?}", update.response);
        }
        bail!("the stream ended before {stage:?}")
    }

    /// Reads on to the end.
    ///
    /// # Errors
    /// As [`Updates::next`], and when the call ends without a response, or goes on after it.
    pub async fn finish(mut self) -> Result<Finished> {
        let mut updates = Vec::<Update>::new();
        while let Some(update) = self.next().await? {
            ensure!(
                updates.last().is_none_or(|u| u.response.is_none()),
                "an update after the response: {update:?}"
            );
            updates.push(update);
        }
        let last = updates.last().context("no update at all")?;
        let response = last.response.clone().with_context(|| format!("no response, last update {last:?}"))?;
        Ok(Finished { updates, response })
    }
}

impl Update {
    /// Which policy routed the action, if the server has said so yet.
    pub fn routing(&self) -> Option<RoutingDecision> {
        let metadata = self.metadata.partial_execution_metadata.as_ref()?;
        let full_name = RoutingDecision::full_name();
        let any = metadata.auxiliary_metadata.iter().find(|any| any.type_url.ends_with(&full_name))?;
        unpack(any).ok()
    }
}

impl Finished {
    /// Which policy routed the action, as far as the updates tell.
    pub fn routing(&self) -> Option<RoutingDecision> {
        self.updates.iter().rev().find_map(Update::routing)
    }

    /// Stages in order, repetitions left out.
    pub fn stages(&self) -> Vec<execution_stage::Value> {
        let mut stages: Vec<_> = self.updates.iter().map(|u| u.metadata.stage()).collect();
        stages.dedup();
        stages
    }

    /// The exit code; `None` when there is no result.
    pub fn exit_code(&self) -> Option<i32> {
        self.response.result.as_ref().map(|r| r.exit_code)
    }
}

impl TryFrom<Operation> for Update {
    type Error = anyhow::Error;

    fn try_from(operation: Operation) -> Result<Self> {
        let metadata = operation.metadata.as_ref().context("an operation without metadata")?;
        let response = match (&operation.result, operation.done) {
            (Some(operation::Result::Response(any)), true) => Some(unpack(any)?),
            (None, false) => None,
            (result, done) => bail!("an operation with done = {done} and result {result:?}"),
        };
        Ok(Self { metadata: unpack(metadata)?, name: operation.name, response })
    }
}
