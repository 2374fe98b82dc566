//! Guests as text: a core module with just what a test is about, made a component by the interface of `wit/`.

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

pub(crate) const WIT: &str = include_str!("../../../../wit/policy.wit");

/// The manifest that `configure` returns by default, and the strings in it.
const NAME: &str = "guest";
const VERSION: &str = "1.2.3";

/// A guest to be built. What is not set does the least that works.
#[derive(Clone)]
pub(crate) struct Guest {
    /// Text of the package `pointsman:policy`.
    pub(crate) wit: String,
    /// Text of further packages.
    pub(crate) more_wit: Vec<String>,
    /// World in a package of its own; `p:` stands for `pointsman:policy`, `@` for its version.
    pub(crate) world: String,
    /// Name that the guest gives itself; at most eight bytes.
    pub(crate) name: String,
    /// Pages of memory to begin with.
    pub(crate) pages: u32,
    /// Core imports.
    pub(crate) imports: String,
    /// Body of `configure`: has `$config` and `$length`, gives an address.
    pub(crate) configure: String,
    /// Body of `route-action`: gives an address. 0 is that of a plain success.
    pub(crate) route: String,
    /// Code that `cabi_realloc` runs first.
    pub(crate) realloc: String,
    /// Further core functions, globals and data. Addresses from 1024 to 65536 are free.
    pub(crate) more: String,
}

/// Where the successful result of `configure` lies.
pub(crate) const MANIFEST: &str = "i32.const 64";
/// Where the successful result of `route-action` lies: nothing but zeros.
pub(crate) const ACCEPT: &str = "i32.const 0";

impl Default for Guest {
    fn default() -> Self {
        Self {
            wit: WIT.into(),
            more_wit: Vec::new(),
            world: "import p:host@; import p:action@; import p:command@; import p:route@;
                    export p:lifecycle@; export p:on-action@;"
                .into(),
            name: NAME.into(),
            pages: 1,
            imports: String::new(),
            configure: MANIFEST.into(),
            route: ACCEPT.into(),
            realloc: String::new(),
            more: String::new(),
        }
    }
}

impl Guest {
    /// A guest that routes by this code.
    pub(crate) fn routing(imports: &str, route: &str) -> Self {
        Self { imports: imports.into(), route: route.into(), ..Self::default() }
    }

    /// The module that a compiler would have written: the interface is embedded.
    pub(crate) fn core(&self) -> Vec<u8> {
        let mut resolve = Resolve::default();
        let package = resolve.push_str("policy.wit", &self.wit).unwrap();
        let version = resolve.packages[package].name.version.clone().unwrap().to_string();
        for (index, text) in self.more_wit.iter().enumerate() {
            resolve.push_str(format!("more{index}.wit"), text).unwrap();
        }
        let world = self.world.replace("p:", "pointsman:policy/").replace("@;", &format!("@{version};"));
        let world = format!("package test:guest;\nworld guest {{ {world} }}");
        let package = resolve.push_str("guest.wit", &world).unwrap();
        let world = resolve.select_world(&[package], Some("guest")).unwrap();
        let mut module = wat::parse_str(self.text(&version)).unwrap();
        wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        module
    }

    /// The component.
    pub(crate) fn build(&self) -> Vec<u8> {
        let module = self.core();
        ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
    }

    fn text(&self, version: &str) -> String {
        let Self { name, pages, imports, configure, route, realloc, more, world, .. } = self;
        let export = |interface: &str, function: &str, body: &str| {
            if world.contains(&format!("export p:{interface}@")) {
                format!("(func (export \"pointsman:policy/{interface}@0.1.0#{function}\") {body})")
            } else {
                String::new()
            }
        };
        let configure = export(
            "lifecycle",
            "configure",
            &format!("(param $config i32) (param $length i32) (result i32) {configure}"),
        );
        let route = export("on-action", "route-action", &format!("(result i32) {route}"));
        let (name_length, version_length) = (name.len(), VERSION.len());
        let text = format!(
            r#"(module
                {imports}
                (memory (export "memory") {pages})
                (global $free (mut i32) (i32.const 32768))
                (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
                    (local $at i32)
                    {realloc}
                    (local.set $at (global.get $free))
                    (global.set $free (i32.and
                        (i32.add (i32.add (global.get $free) (local.get $size)) (i32.const 7)) (i32.const -8)))
                    (local.get $at))
                ;; result<manifest>: at 64 the case, at 68 name, at 76 version, at 84 no schema
                (data (i32.const 68) "\80\00\00\00\{name_length:02x}\00\00\00\90\00\00\00\{version_length:02x}")
                (data (i32.const 128) "{name}")
                (data (i32.const 144) "{VERSION}")
                {configure} {route} {more})"#
        );
        text.replace("@0.1.0", &format!("@{version}"))
    }
}

/// Text of a core import: `import("route", "note", "i32 i32", "")`, called as `$route.note`.
pub(crate) fn import(interface: &str, function: &str, parameters: &str, result: &str) -> String {
    let result = if result.is_empty() { String::new() } else { format!("(result {result})") };
    format!(
        "(import \"pointsman:policy/{interface}@0.1.0\" \"{function}\"
            (func ${interface}.{function} (param {parameters}) {result}))\n"
    )
}
