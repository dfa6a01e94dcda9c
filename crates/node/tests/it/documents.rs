//! Documents agree with the code: docs/walkthrough.md names only existing functions, none twice in a section, and has few
//! enough steps to follow; docs/rules.md has every rule that the code cites.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

struct Step<'t> {
    file: &'t str,
    function: &'t str,
}

/// The numbered steps of each `##` section.
fn ways(text: &str) -> Vec<(&str, Vec<Step<'_>>)> {
    let sections = text.split("\n## ").skip(1);
    let ways = sections.map(|section| {
        let (title, rest) = section.split_once('\n').unwrap();
        let steps = rest.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        let quoted = |line| str::split(line, '`').skip(1).step_by(2).collect::<Vec<_>>();
        let steps = steps.map(|line| match quoted(line)[..] {
            [file, function, ..] => Step { file, function },
            _ => panic!("a step is a `file` and a `function`: {line}"),
        });
        (title, steps.collect())
    });
    ways.collect()
}

#[test]
fn every_step_of_the_walkthroughs_is_a_function_of_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/walkthrough.md")).unwrap();
    let ways = ways(&text);
    for (title, most) in [("One EVENT", 30), ("One REQ", 20), ("One gossip message", 20), ("One outbox row", 20)] {
        let (_, steps) = ways.iter().find(|(way, _)| way.starts_with(title)).expect(title);
        assert!((5..=most).contains(&steps.len()), "{title} has {} steps", steps.len());
        let mut names = BTreeSet::new();
        for Step { file, function } in steps {
            let source = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            let is_there = [format!("fn {function}("), format!("fn {function}<")];
            assert!(is_there.iter().any(|start| source.contains(start)), "{title}: no function {function} in {file}");
            assert!(names.insert(function), "{title}: {function} stands twice on the way");
        }
    }
}

/// Every file with this extension in a directory and those below it.
fn files_below(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, extension, found);
        } else if path.extension().is_some_and(|is| is == extension) {
            found.push(path);
        }
    }
}

/// Rule numbers in a text: a capital letter, a hyphen, digits, not within a word.
fn rules_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').filter(|word| {
        let (letter, number) = word.split_once('-').unwrap_or_default();
        let is_letter = letter.len() == 1 && letter.starts_with(|c: char| c.is_ascii_uppercase());
        is_letter && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

#[test]
fn every_rule_that_the_code_cites_is_in_the_list_of_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rules = fs::read_to_string(root.join("docs/rules.md")).unwrap();
    let mut sources = Vec::new();
    files_below(&root.join("crates"), "rs", &mut sources);
    for source in sources {
        let text = fs::read_to_string(&source).unwrap();
        for rule in rules_in(&text) {
            assert!(rules.contains(&format!("| {rule} |")), "{}: {rule} is not in docs/rules.md", source.display());
        }
    }
}
