//! A command in one line, split into words as a shell does: quotes and backslashes, nothing else.

use anyhow::bail;

pub(crate) fn split(line: &str) -> anyhow::Result<Vec<String>> {
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            space if space.is_whitespace() => words.extend(word.take()),
            '\\' => match characters.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => bail!("a command ends in a backslash"),
            },
            quote @ ('"' | '\'') => quoted(quote, &mut characters, word.get_or_insert_default())?,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(quote: char, characters: &mut std::str::Chars<'_>, word: &mut String) -> anyhow::Result<()> {
    while let Some(character) = characters.next() {
        match character {
            end if end == quote => return Ok(()),
            // Within double quotes a backslash stays, unless it is needed.
            '\\' if quote == '"' => match characters.next() {
                Some(next @ ('"' | '\\' | '$' | '`')) => word.push(next),
                Some(next) => word.extend(['\\', next]),
                None => break,
            },
            other => word.push(other),
        }
    }
    bail!("a quote is not closed")
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_split_as_a_shell_does() {
        for (line, words) in [
            ("relay --port {port}  {dir}", vec!["relay", "--port", "{port}", "{dir}"]),
            ("sh -c 'cd {dir} && exec relay \"$PORT\"'", vec!["sh", "-c", "cd {dir} && exec relay \"$PORT\""]),
            (r#"a "b c"d '' "" e\ f"#, vec!["a", "b cd", "", "", "e f"]),
            (r#""a\"b\n" 'c\d'"#, vec![r#"a"b\n"#, r"c\d"]),
            ("  ", vec![]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
    }

    #[test]
    fn what_is_not_closed_is_refused() {
        for line in ["a 'b", "a \"b", "a \\", "\"\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
