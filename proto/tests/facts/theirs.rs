//! Facts from the generated source of the crate `bazel-remote-apis`.
use super::{Facts, Key, fold};
use std::{collections::BTreeMap, path::PathBuf, process::Command, sync::OnceLock};
use syn::{Expr, Fields, GenericArgument, ImplItem, Item, Lit, PathArguments, Stmt, Type};

/// Messages, enums and services of one package.
pub(crate) fn package(package: &str) -> Facts {
    let path = source_dir().join(format!("{package}.rs"));
    let source = syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut facts = Facts::new();
    let scope = package.split('.').map(str::to_owned).collect();
    Scope(scope).module(&source.items, &mut facts);
    facts
}

fn source_dir() -> &'static PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let args = ["metadata", "--format-version=1", "--offline"];
        let out = Command::new(env!("CARGO")).args(args).output().unwrap();
        assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
        let meta: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let packages = meta["packages"].as_array().unwrap();
        let theirs = packages.iter().find(|p| p["name"] == "bazel-remote-apis").unwrap();
        assert!(theirs["version"].as_str().unwrap().starts_with("0.30."), "{}", theirs["version"]);
        PathBuf::from(theirs["manifest_path"].as_str().unwrap()).with_file_name("src").join("generated")
    })
}

/// Arguments of `#[prost(…)]`.
type Args = BTreeMap<String, String>;

fn prost_args(attrs: &[syn::Attribute]) -> Option<Args> {
    let attr = attrs.iter().find(|a| a.path().is_ident("prost"))?;
    let mut args = BTreeMap::new();
    attr.parse_nested_meta(|m| {
        let value = if m.input.peek(syn::Token![=]) {
            m.value()?.parse::<syn::LitStr>()?.value()
        } else {
            String::new()
        };
        args.insert(m.path.get_ident().unwrap().to_string(), value);
        Ok(())
    })
    .unwrap();
    Some(args)
}

/// Path of a module: package and outer messages.
struct Scope(Vec<String>);

impl Scope {
    fn inner(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }

    fn folded(&self) -> String {
        fold(self.0.iter().map(String::as_str))
    }

    /// Full name of the type that a path in this module means.
    fn resolve(&self, path: &syn::Path) -> String {
        let mut scope = self.0.clone();
        for segment in path.segments.iter().map(|s| s.ident.to_string()) {
            if segment == "super" {
                scope.pop().unwrap();
            } else {
                scope.push(segment);
            }
        }
        Self(scope).folded()
    }

    fn module(&self, items: &[Item], facts: &mut Facts) {
        for item in items {
            match item {
                Item::Struct(s) => {
                    let fields = self.fields(s, items);
                    facts.insert(self.inner(&s.ident.to_string()).folded(), fields);
                }
                Item::Enum(e) if e.variants.iter().all(|v| v.discriminant.is_some()) => {
                    facts.insert(self.inner(&e.ident.to_string()).folded(), values(e, items));
                }
                Item::Mod(m) => {
                    let (name, inner) = (m.ident.to_string(), &m.content.as_ref().unwrap().1);
                    if name.ends_with("_client") {
                        let methods = self.inner(&name).methods(inner);
                        facts.insert(self.inner(name.trim_end_matches("_client")).folded(), methods);
                    } else if !name.ends_with("_server") {
                        self.inner(&name).module(inner, facts);
                    }
                }
                _ => {}
            }
        }
    }

    fn fields(&self, s: &syn::ItemStruct, items: &[Item]) -> BTreeMap<Key, String> {
        let mut fields = BTreeMap::new();
        for f in &s.fields {
            let args = prost_args(&f.attrs).unwrap();
            let name = f.ident.as_ref().unwrap().to_string();
            let name = name.trim_start_matches("r#");
            match args.get("oneof") {
                Some(of) => fields.extend(self.oneof(name, of, items)),
                None => drop(fields.insert(number(&args), self.describe(&args, name, &f.ty, ""))),
            }
        }
        fields
    }

    fn oneof(&self, name: &str, path: &str, items: &[Item]) -> Vec<(Key, String)> {
        let (module, of) = path.split_once("::").unwrap();
        let inner = items.iter().find_map(|i| match i {
            Item::Mod(m) if m.ident == module => m.content.as_ref(),
            _ => None,
        });
        let of = inner.unwrap().1.iter().find_map(|i| match i {
            Item::Enum(e) if e.ident == of => Some(e),
            _ => None,
        });
        let label = format!("oneof {name} ");
        let members = of.unwrap().variants.iter().map(|v| {
            let Fields::Unnamed(content) = &v.fields else { panic!("{path}: member without content") };
            let args = prost_args(&v.attrs).unwrap();
            let name = snake(&v.ident.to_string());
            (number(&args), self.inner(module).describe(&args, &name, &content.unnamed[0].ty, &label))
        });
        members.collect()
    }

    fn describe(&self, args: &Args, name: &str, ty: &Type, oneof: &str) -> String {
        if let Some(map) = args.get("map") {
            let (k, v) = map.split_once(", ").unwrap();
            let v = if v == "message" { self.resolve(innermost(ty)) } else { v.into() };
            return format!("map {k} {v} {name}");
        }
        let kind = if args.contains_key("message") {
            self.resolve(innermost(ty))
        } else if let Some(e) = args.get("enumeration") {
            self.resolve(&syn::parse_str(e).unwrap())
        } else {
            let labels = ["tag", "optional", "repeated", "packed", "boxed"];
            args.keys().find(|k| !labels.contains(&k.as_str())).unwrap().clone()
        };
        let label = if args.contains_key("repeated") {
            "repeated "
        } else if args.contains_key("optional") && !args.contains_key("message") {
            "optional "
        } else {
            oneof
        };
        format!("{label}{kind} {name}")
    }

    /// Methods of a generated client; a call looks like `self.inner.unary(request, path, codec).await`.
    fn methods(&self, items: &[Item]) -> BTreeMap<Key, String> {
        let functions = items.iter().filter_map(|i| match i {
            Item::Impl(i) if i.trait_.is_none() => Some(i.items.iter()),
            _ => None,
        });
        let calls = functions.flatten().filter_map(|f| match f {
            // Not `connect`, which is asynchronous too.
            ImplItem::Fn(f) if f.block.stmts.iter().any(|s| literal_path(s).is_some()) => {
                Some(self.method(f))
            }
            _ => None,
        });
        calls.collect()
    }

    fn method(&self, f: &syn::ImplItemFn) -> (Key, String) {
        let path = f.block.stmts.iter().find_map(literal_path).unwrap();
        let Some(Stmt::Expr(Expr::Await(last), _)) = f.block.stmts.last() else { panic!("{path}: no call") };
        let Expr::MethodCall(call) = &*last.base else { panic!("{path}: no call") };
        let (up, down) = match call.method.to_string().as_str() {
            "unary" => ("", ""),
            "client_streaming" => ("stream ", ""),
            "server_streaming" => ("", "stream "),
            "streaming" => ("stream ", "stream "),
            other => panic!("{path}: kind of call {other}"),
        };
        let Some(syn::FnArg::Typed(request)) = f.sig.inputs.last() else { panic!("{path}: no request") };
        let Type::ImplTrait(into) = &*request.ty else { panic!("{path}: request is no trait") };
        let syn::TypeParamBound::Trait(into) = &into.bounds[0] else { panic!("{path}: request is no trait") };
        let syn::ReturnType::Type(_, response) = &f.sig.output else { panic!("{path}: no response") };
        let Type::Path(result) = &**response else { panic!("{path}: no result") };
        let request = self.resolve(innermost(argument(&into.path, 0).unwrap()));
        let response = self.resolve(innermost(argument(&result.path, 0).unwrap()));
        (Key::Method(path), format!("{up}{request} -> {down}{response}"))
    }
}

fn number(args: &Args) -> Key {
    Key::Number(args["tag"].parse().unwrap())
}

/// The type argument of a path's last segment.
fn argument(path: &syn::Path, index: usize) -> Option<&Type> {
    let PathArguments::AngleBracketed(args) = &path.segments.last()?.arguments else { return None };
    match args.args.iter().nth(index)? {
        GenericArgument::Type(t) => Some(t),
        GenericArgument::AssocType(named) => Some(&named.ty),
        _ => None,
    }
}

/// What is inside `Option`, `Vec`, `Box`, the values of a map, and the like.
fn innermost(ty: &Type) -> &syn::Path {
    let Type::Path(p) = ty else { panic!("a type that is no path") };
    let last = argument(&p.path, 1).or_else(|| argument(&p.path, 0));
    last.map_or(&p.path, innermost)
}

/// The path in `let path = PathAndQuery::from_static("…")`.
fn literal_path(stmt: &Stmt) -> Option<String> {
    let Stmt::Local(local) = stmt else { return None };
    let Expr::Call(call) = &*local.init.as_ref()?.expr else { return None };
    match call.args.first()? {
        Expr::Lit(syn::ExprLit { lit: Lit::Str(s), .. }) => Some(s.value()),
        _ => None,
    }
}

fn values(e: &syn::ItemEnum, items: &[Item]) -> BTreeMap<Key, String> {
    let names = value_names(items, &e.ident);
    let values = e.variants.iter().map(|v| {
        let Some((_, Expr::Lit(syn::ExprLit { lit: Lit::Int(n), .. }))) = &v.discriminant else {
            panic!("{}: value is no number", v.ident)
        };
        (Key::Number(n.base10_parse().unwrap()), names[&v.ident.to_string()].clone())
    });
    values.collect()
}

/// Variant → exact name of the value, from the function `as_str_name`.
fn value_names(items: &[Item], ident: &syn::Ident) -> BTreeMap<String, String> {
    let functions = items.iter().filter_map(|i| match i {
        Item::Impl(i) if matches!(&*i.self_ty, Type::Path(p) if p.path.is_ident(ident)) => Some(&i.items),
        _ => None,
    });
    let name_of = functions.flatten().find_map(|f| match f {
        ImplItem::Fn(f) if f.sig.ident == "as_str_name" => Some(f),
        _ => None,
    });
    let Some(Stmt::Expr(Expr::Match(m), _)) = name_of.unwrap().block.stmts.first() else {
        panic!("{ident}: no names")
    };
    let names = m.arms.iter().map(|arm| {
        let syn::Pat::Path(p) = &arm.pat else { panic!("{ident}: arm is no variant") };
        let Expr::Lit(syn::ExprLit { lit: Lit::Str(s), .. }) = &*arm.body else { panic!("{ident}: no name") };
        (p.path.segments.last().unwrap().ident.to_string(), s.value())
    });
    names.collect()
}

fn snake(name: &str) -> String {
    let mut s = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !s.is_empty() {
            s.push('_');
        }
        s.extend(c.to_lowercase());
    }
    s
}
