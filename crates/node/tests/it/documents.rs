//! docs/walkthrough.md names only existing functions, none twice in a section, and has few enough steps to follow.

use std::{collections::BTreeSet, fs, path::Path};

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
