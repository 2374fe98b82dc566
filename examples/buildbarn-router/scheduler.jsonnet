// The part of bb_scheduler's configuration that has it ask routers. The rest stays as it is.
{
  actionRouter: {
    // In place of `simple`, with its `platformKeyExtractor`, `invocationKeyExtractors` and `initialSizeClassAnalyzer`: queue
    // and groups now come from the router.
    remote: {
      // Both replicas behind one name, such as that of a Kubernetes Service. The scheduler has one connection, so one of them
      // answers and the other is there for when that one ends: either answers the same, and one has room for far more
      // than a scheduler.
      grpcClient: { address: 'pointsman-router:8990' },
      // Size classes stay the scheduler's own business.
      initialSizeClassAnalyzer: {
        defaultExecutionTimeout: '1800s',
        maximumExecutionTimeout: '7200s',
      },
    },
  },
}
