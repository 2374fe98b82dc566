//! Facts from our own descriptors.
use super::{Facts, Key, fold};
use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

/// Messages, enums and services of one package.
pub(crate) fn package(package: &str) -> Facts {
    let set = FileDescriptorSet::decode(pointsman_proto::DESCRIPTORS).unwrap();
    let mut facts = Facts::new();
    for file in set.file.iter().filter(|f| f.package() == package) {
        file.message_type.iter().for_each(|m| message(package, m, &mut facts));
        file.enum_type.iter().for_each(|e| enumeration(package, e, &mut facts));
        file.service.iter().for_each(|s| service(package, s, &mut facts));
    }
    facts
}

fn folded(path: &str) -> String {
    fold(path.trim_start_matches('.').split('.'))
}

fn enumeration(scope: &str, e: &EnumDescriptorProto, facts: &mut Facts) {
    let values = e.value.iter().map(|v| (Key::Number(v.number()), v.name().to_owned()));
    facts.insert(folded(&format!("{scope}.{}", e.name())), values.collect());
}

fn message(scope: &str, m: &DescriptorProto, facts: &mut Facts) {
    let path = format!("{scope}.{}", m.name());
    m.nested_type.iter().filter(|n| !is_map_entry(n)).for_each(|n| message(&path, n, facts));
    m.enum_type.iter().for_each(|e| enumeration(&path, e, facts));
    let fields = m.field.iter().map(|f| (Key::Number(f.number()), field(m, f)));
    facts.insert(folded(&path), fields.collect());
}

fn is_map_entry(m: &DescriptorProto) -> bool {
    m.options.as_ref().is_some_and(|o| o.map_entry())
}

fn field(m: &DescriptorProto, f: &FieldDescriptorProto) -> String {
    let last = f.type_name().rsplit('.').next().unwrap();
    if let Some(entry) = m.nested_type.iter().find(|n| n.name() == last && is_map_entry(n)) {
        return format!("map {} {} {}", kind(&entry.field[0]), kind(&entry.field[1]), f.name());
    }
    let label = match f.label() {
        Label::Repeated => "repeated ".to_owned(),
        _ if f.proto3_optional() && f.r#type() != Type::Message => "optional ".to_owned(),
        _ => match f.oneof_index {
            Some(i) if !f.proto3_optional() => {
                format!("oneof {} ", m.oneof_decl[usize::try_from(i).unwrap()].name())
            }
            _ => String::new(),
        },
    };
    format!("{label}{} {}", kind(f), f.name())
}

fn kind(f: &FieldDescriptorProto) -> String {
    match f.r#type() {
        Type::Message | Type::Enum => folded(f.type_name()),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn service(package: &str, s: &ServiceDescriptorProto, facts: &mut Facts) {
    let methods = s.method.iter().map(|m| {
        let path = format!("/{package}.{}/{}", s.name(), m.name());
        let stream = |yes| if yes { "stream " } else { "" };
        let what = format!(
            "{}{} -> {}{}",
            stream(m.client_streaming()),
            folded(m.input_type()),
            stream(m.server_streaming()),
            folded(m.output_type()),
        );
        (Key::Method(path), what)
    });
    facts.insert(folded(&format!("{package}.{}", s.name())), methods.collect());
}
