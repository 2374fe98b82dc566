//! Function types as text, for people and for comparing: once from `wit/policy.wit`, once from a component.
//!
//! Names of parameters are left out, as the engine does not look at them either.

use wasmtime::component::types::{ComponentFunc, Type as Seen};
use wit_parser::{Function, Handle, Resolve, Type, TypeDefKind};

/// A function of the WIT text.
pub(crate) fn of_wit(resolve: &Resolve, function: &Function) -> String {
    let parameters = function.params.iter().map(|parameter| wit_type(resolve, &parameter.ty));
    signature(parameters, function.result.as_ref().map(|ty| wit_type(resolve, ty)))
}

/// A function that a component imports or exports.
pub(crate) fn of_component(function: &ComponentFunc) -> String {
    let parameters = function.params().map(|(_, ty)| seen_type(&ty));
    let text = signature(parameters, function.results().next().map(|ty| seen_type(&ty)));
    if function.async_() { format!("async {text}") } else { text }
}

fn signature(parameters: impl Iterator<Item = String>, result: Option<String>) -> String {
    let parameters = join(parameters);
    match result {
        Some(result) => format!("func({parameters}) -> {result}"),
        None => format!("func({parameters})"),
    }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// `name<a, b>`, with `_` for what is not there, and without brackets when there is nothing at all.
fn generic(name: &str, parts: &[Option<String>]) -> String {
    if parts.iter().all(Option::is_none) {
        return name.into();
    }
    format!("{name}<{}>", join(parts.iter().map(|part| part.clone().unwrap_or_else(|| "_".into()))))
}

fn case(name: &str, payload: Option<String>) -> String {
    payload.map_or_else(|| name.into(), |payload| format!("{name}({payload})"))
}

fn wit_type(resolve: &Resolve, ty: &Type) -> String {
    let text = |ty: &Type| wit_type(resolve, ty);
    let maybe = |ty: &Option<Type>| ty.as_ref().map(|ty| wit_type(resolve, ty));
    let id = match ty {
        Type::Id(id) => id,
        Type::Bool => return "bool".into(),
        Type::U8 => return "u8".into(),
        Type::U16 => return "u16".into(),
        Type::U32 => return "u32".into(),
        Type::U64 => return "u64".into(),
        Type::S8 => return "s8".into(),
        Type::S16 => return "s16".into(),
        Type::S32 => return "s32".into(),
        Type::S64 => return "s64".into(),
        Type::F32 => return "f32".into(),
        Type::F64 => return "f64".into(),
        Type::Char => return "char".into(),
        Type::String => return "string".into(),
        Type::ErrorContext => return "error-context".into(),
    };
    match &resolve.types[*id].kind {
        TypeDefKind::Type(other) => text(other),
        TypeDefKind::Record(record) => {
            let fields = record.fields.iter().map(|field| format!("{}: {}", field.name, text(&field.ty)));
            format!("record {{ {} }}", join(fields))
        }
        TypeDefKind::Variant(variant) => {
            let cases = variant.cases.iter().map(|each| case(&each.name, maybe(&each.ty)));
            format!("variant {{ {} }}", join(cases))
        }
        TypeDefKind::Enum(names) => {
            format!("enum {{ {} }}", join(names.cases.iter().map(|case| case.name.clone())))
        }
        TypeDefKind::Flags(names) => {
            format!("flags {{ {} }}", join(names.flags.iter().map(|flag| flag.name.clone())))
        }
        TypeDefKind::Tuple(tuple) => format!("tuple<{}>", join(tuple.types.iter().map(text))),
        TypeDefKind::Option(inner) => format!("option<{}>", text(inner)),
        TypeDefKind::List(inner) => format!("list<{}>", text(inner)),
        TypeDefKind::FixedLengthList(inner, length) => format!("list<{}, {length}>", text(inner)),
        TypeDefKind::Map(key, value) => format!("map<{}, {}>", text(key), text(value)),
        TypeDefKind::Result(result) => generic("result", &[maybe(&result.ok), maybe(&result.err)]),
        TypeDefKind::Future(inner) => generic("future", &[maybe(inner)]),
        TypeDefKind::Stream(inner) => generic("stream", &[maybe(inner)]),
        TypeDefKind::Handle(Handle::Own(_)) => "own resource".into(),
        TypeDefKind::Handle(Handle::Borrow(_)) => "borrowed resource".into(),
        TypeDefKind::Resource | TypeDefKind::Unknown => "resource".into(),
    }
}

fn seen_type(ty: &Seen) -> String {
    match ty {
        Seen::Bool => "bool".into(),
        Seen::U8 => "u8".into(),
        Seen::U16 => "u16".into(),
        Seen::U32 => "u32".into(),
        Seen::U64 => "u64".into(),
        Seen::S8 => "s8".into(),
        Seen::S16 => "s16".into(),
        Seen::S32 => "s32".into(),
        Seen::S64 => "s64".into(),
        Seen::Float32 => "f32".into(),
        Seen::Float64 => "f64".into(),
        Seen::Char => "char".into(),
        Seen::String => "string".into(),
        Seen::ErrorContext => "error-context".into(),
        Seen::Record(record) => {
            let fields = record.fields().map(|field| format!("{}: {}", field.name, seen_type(&field.ty)));
            format!("record {{ {} }}", join(fields))
        }
        Seen::Variant(variant) => {
            let cases = variant.cases().map(|each| case(each.name, each.ty.as_ref().map(seen_type)));
            format!("variant {{ {} }}", join(cases))
        }
        Seen::Enum(names) => format!("enum {{ {} }}", join(names.names().map(Into::into))),
        Seen::Flags(names) => format!("flags {{ {} }}", join(names.names().map(Into::into))),
        Seen::Tuple(tuple) => format!("tuple<{}>", join(tuple.types().map(|ty| seen_type(&ty)))),
        Seen::Option(option) => format!("option<{}>", seen_type(&option.ty())),
        Seen::List(list) => format!("list<{}>", seen_type(&list.ty())),
        Seen::FixedLengthList(list) => format!("list<{}, {}>", seen_type(&list.ty()), list.len()),
        Seen::Map(map) => format!("map<{}, {}>", seen_type(&map.key()), seen_type(&map.value())),
        Seen::Result(result) => {
            generic("result", &[result.ok(), result.err()].map(|ty| ty.as_ref().map(seen_type)))
        }
        Seen::Future(future) => generic("future", &[future.ty().as_ref().map(seen_type)]),
        Seen::Stream(stream) => generic("stream", &[stream.ty().as_ref().map(seen_type)]),
        Seen::Own(_) => "own resource".into(),
        Seen::Borrow(_) => "borrowed resource".into(),
    }
}
