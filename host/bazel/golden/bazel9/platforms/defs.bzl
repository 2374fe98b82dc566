# Written by `pointsman bazel flags` from pools.json5: change that, not this.
# Rules for Buck2; Bazel has no use for them.

def _pool_platform(ctx):
    constraints = {}
    for value in ctx.attrs.constraint_values:
        constraints.update(value[ConfigurationInfo].constraints)
    if ctx.attrs.remote:
        executor = CommandExecutorConfig(
            local_enabled = ctx.attrs.local,
            remote_enabled = True,
            use_limited_hybrid = ctx.attrs.local,
            remote_execution_properties = ctx.attrs.properties,
            remote_execution_use_case = "buck2-default",
            remote_output_paths = "output_paths",
        )
    else:
        executor = CommandExecutorConfig(local_enabled = True, remote_enabled = False)
    return [
        DefaultInfo(),
        ExecutionPlatformInfo(
            label = ctx.label.raw_target(),
            configuration = ConfigurationInfo(constraints = constraints, values = {}),
            executor_config = executor,
        ),
    ]

pool_platform = rule(
    impl = _pool_platform,
    attrs = {
        "constraint_values": attrs.list(attrs.dep(providers = [ConfigurationInfo])),
        "local": attrs.bool(),
        "properties": attrs.dict(key = attrs.string(), value = attrs.string(), default = {}),
        "remote": attrs.bool(),
    },
)

def _execution_platforms(ctx):
    return [
        DefaultInfo(),
        ExecutionPlatformRegistrationInfo(
            platforms = [platform[ExecutionPlatformInfo] for platform in ctx.attrs.platforms],
        ),
    ]

execution_platforms = rule(
    impl = _execution_platforms,
    attrs = {
        "platforms": attrs.list(attrs.dep(providers = [ExecutionPlatformInfo])),
    },
)
