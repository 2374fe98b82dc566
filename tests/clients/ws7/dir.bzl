"""An action with a directory output that holds a file, a folder and a symbolic link, and one that reads it."""

def _make_dir(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name + ".d")
    listing = ctx.actions.declare_file(ctx.label.name + ".txt")
    ctx.actions.run_shell(
        outputs = [folder],
        command = "cd {} && echo a > file && mkdir sub && echo b > sub/file && ln -s file link".format(folder.path),
        mnemonic = "MakeDir",
    )
    ctx.actions.run_shell(
        inputs = [folder],
        outputs = [listing],
        command = "find {} | sort > {}".format(folder.path, listing.path),
        mnemonic = "ReadDir",
    )
    return [DefaultInfo(files = depset([listing, folder]))]

make_dir = rule(implementation = _make_dir)
