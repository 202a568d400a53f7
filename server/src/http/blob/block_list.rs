//! The list that ends an upload in blocks, as Azure's clients send it (rule 32 of docs/rest.md):
//! `<BlockList><Latest>id</Latest>…</BlockList>`, where `Committed`, `Uncommitted` and `Latest` all name blocks.

use quick_xml::Reader;
use quick_xml::events::Event;

/// As many blocks as Azure allows in one blob.
const MAX_BLOCKS: usize = 50_000;

/// The ids in their order, or why there are none.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    let mut ids = Vec::new();
    let mut in_list = false;
    let mut had_list = false;
    let mut id: Option<String> = None;
    loop {
        match reader.read_event().map_err(|e| e.to_string())? {
            Event::Start(tag) => match (in_list, tag.local_name().as_ref()) {
                (false, "BlockList") if !had_list => (in_list, had_list) = (true, true),
                (true, "Latest" | "Committed" | "Uncommitted") if id.is_none() => id = Some(String::new()),
                (_, name) => return Err(format!("<{name}> is not expected")),
            },
            Event::Text(text) => match &mut id {
                Some(id) => id.push_str(text.trim()),
                None if text.trim().is_empty() => {}
                None => return Err("there is text between the blocks".to_owned()),
            },
            Event::End(_) => match id.take() {
                Some(id) if ids.len() < MAX_BLOCKS => ids.push(id),
                Some(_) => return Err(format!("it has more than {MAX_BLOCKS} blocks")),
                None => in_list = false,
            },
            Event::Empty(tag) if !had_list && tag.local_name().as_ref() == "BlockList" => had_list = true,
            Event::Decl(_) | Event::Comment(_) => {}
            Event::Eof => break,
            _ => return Err("it is no list of blocks".to_owned()),
        }
    }
    if ids.is_empty() || in_list || ids.iter().any(String::is_empty) {
        return Err("it names no blocks".to_owned());
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_32_the_list_of_an_azure_client() {
        let text = "<?xml version='1.0' encoding='utf-8'?>\n<BlockList><Latest>MDAx</Latest>\n<Latest>MDAy</Latest>\
                    <Uncommitted>MDAz</Uncommitted></BlockList>";
        assert_eq!(parse(text.as_bytes()).unwrap(), ["MDAx", "MDAy", "MDAz"]);
    }

    #[test]
    fn other_documents_are_refused() {
        for text in [
            "",
            "x",
            "<BlockList/>",
            "<BlockList></BlockList>",
            "<BlockList><Latest/></BlockList>",
            "<BlockList><Latest></Latest></BlockList>",
            "<BlockList><Latest>a</BlockList>",
            "<BlockList><Latest><Latest>a</Latest></Latest></BlockList>",
            "<Other><Latest>a</Latest></Other>",
            "<BlockList><Latest>a</Latest>",
            "<BlockList><Latest>a</Latest></BlockList><BlockList><Latest>b</Latest></BlockList>",
            "<BlockList/><BlockList><Latest>b</Latest></BlockList>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><BlockList><Latest>&b;</Latest></BlockList>",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
