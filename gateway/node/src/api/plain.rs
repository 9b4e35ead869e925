//! What is wrong with a request, in plain words.
//!
//! serde tells it in words of Rust, which its callers cannot know, and by the column of the text. A
//! person wants to know which field is wrong and what may be given there.

/// How serde's faults of a value begin.
const FAULTS: [&str; 6] = [
    "missing field `",
    "duplicate field `",
    "unknown field `",
    "unknown variant `",
    "invalid type: ",
    "invalid value: ",
];

/// What parsers say of a text that is no value of their type.
const PARSERS: [(&str, &str); 7] = [
    ("invalid digit found in string", "must be a whole number"),
    (
        "cannot parse integer from empty string",
        "must be a whole number",
    ),
    (
        "number too large to fit in target type",
        "is too large a number",
    ),
    (
        "number too small to fit in target type",
        "is too small a number",
    ),
    ("invalid float literal", "must be a number"),
    (
        "provided string was not `true` or `false`",
        "must be true or false",
    ),
    (
        "invalid IP address syntax",
        "must be a network such as 192.168.8.0/24",
    ),
];

/// What is wrong with a value of which serde says `said`; before a fault stands the field's path, as
/// in ``blockages[0]: missing field `exit` at line 1 column 30``.
pub(super) fn value(said: &str) -> String {
    let said = without_place(said);
    let begin = FAULTS.iter().filter_map(|fault| begin_of(said, fault));
    let explained = match begin.min() {
        Some(at) => {
            let path = said[..at].strip_suffix(": ").unwrap_or_default();
            explain(path, &said[at..])
        }
        None => PARSERS.iter().find_map(|(fault, plain)| {
            let path = said.strip_suffix(*fault)?;
            let path = path.strip_suffix(": ").unwrap_or_default();
            Some(format!("{} {plain}", subject(path)))
        }),
    };
    explained.unwrap_or_else(|| said.to_owned())
}

/// What is wrong with a body that is no JSON, of which serde says `said`.
pub(super) fn syntax(said: &str) -> String {
    if said.contains("EOF while parsing") {
        "the body is no JSON: it ends too early".to_owned()
    } else {
        format!("the body is no JSON: {said}")
    }
}

/// What a value of this type of Rust, or of this description, is.
pub(super) fn kind(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        _ if expected.starts_with("struct ") => "an object",
        _ if expected.starts_with("an RFC3339") => "a time such as 2026-01-31T12:00:00Z",
        _ => expected,
    }
}

/// `said` without its place in the text, which a caller may not have as it was sent.
fn without_place(said: &str) -> &str {
    let is_number = |text: &str| text.bytes().all(|octet| octet.is_ascii_digit());
    let is_place = |place: &str| {
        let numbers = place.split_once(" column ");
        numbers.is_some_and(|(line, column)| is_number(line) && is_number(column))
    };
    match said.rsplit_once(" at line ") {
        Some((fault, place)) if is_place(place) => fault,
        _ => said,
    }
}

/// Where `fault` begins in `said`: at its beginning, or behind a path.
fn begin_of(said: &str, fault: &str) -> Option<usize> {
    let mut found = said.match_indices(fault).map(|(at, _)| at);
    found.find(|at| *at == 0 || said[..*at].ends_with(": "))
}

fn explain(path: &str, fault: &str) -> Option<String> {
    if let Some(field) = fault.strip_prefix("missing field `") {
        let field = field.strip_suffix('`')?;
        return Some(format!("{} is missing", below(path, field)));
    }
    if let Some(field) = fault.strip_prefix("duplicate field `") {
        let field = field.strip_suffix('`')?;
        return Some(format!("{} is given twice", below(path, field)));
    }
    // The path of a name that is not known includes it.
    if let Some(rest) = fault.strip_prefix("unknown field `") {
        let (field, known) = rest.rsplit_once("`, expected ")?;
        let field = if path.is_empty() { field } else { path };
        let known = known.strip_prefix("one of ").unwrap_or(known);
        let known = known.replace("` or `", "` and `").replace('`', "");
        return Some(format!("there is no {field} here, only {known}"));
    }
    if let Some(rest) = fault.strip_prefix("unknown variant `") {
        let (given, known) = rest.rsplit_once("`, expected ")?;
        let known = known.replace('`', "");
        return Some(format!("{} must be {known}, not {given:?}", subject(path)));
    }
    let of_type = fault.strip_prefix("invalid type: ");
    let rest = of_type.or_else(|| fault.strip_prefix("invalid value: "))?;
    let (given, expected) = rest.rsplit_once(", expected ")?;
    let (path, expected) = (subject(path), kind(expected));
    Some(format!(
        "{path} must be {expected}, not {}",
        given_as(given)
    ))
}

/// What was given, as a caller would call it.
fn given_as(given: &str) -> &str {
    match given {
        "sequence" => "a list",
        "map" => "an object",
        _ => {
            let kinds = ["boolean ", "integer ", "floating point ", "string "];
            let value = kinds.iter().find_map(|kind| given.strip_prefix(*kind));
            value.unwrap_or(given).trim_matches('`')
        }
    }
}

/// The path of a field below `path`.
fn below(path: &str, field: &str) -> String {
    match path {
        "" => field.to_owned(),
        _ => format!("{path}.{field}"),
    }
}

fn subject(path: &str) -> &str {
    match path {
        "" => "the body",
        _ => path,
    }
}
