//! What `--help` and `edgeward help` say: of all commands, or of one.

use super::{About, COMMANDS, EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD, EXIT_USAGE, OPTIONS};
use crate::config::DEFAULT_PATH;

/// The text of `--help`, for all or for one command. Ends with a newline.
#[must_use]
pub fn help(command: Option<&str>) -> String {
    let mut text = match COMMANDS.iter().find(|about| Some(about.name) == command) {
        Some(about) => one(about),
        None => all(),
    };
    text.push_str(&format!(
        "\nexit codes: {EXIT_GOOD} good, {EXIT_FAILED} failed, {EXIT_USAGE} wrong command line, {EXIT_CONFIG} wrong configuration\n",
    ));
    text
}

fn all() -> String {
    let mut text = "edgeward: one endpoint before a local model server, and a stream that outlives it\n\n\
                    usage: edgeward COMMAND [OPTIONS]; edgeward help COMMAND tells of its options\n\n"
        .to_owned();
    for About { name, does, .. } in &COMMANDS {
        if *name != "demo" || cfg!(feature = "sim") {
            text.push_str(&format!("  {name:<8} {does}\n"));
        }
    }
    text.push('\n');
    options(
        &mut text,
        &[("--config", "the configuration"), ("--help", "this"), ("--version", "the version")],
    );
    text
}

fn one(About { name, usage, does, options, example }: &About) -> String {
    let mut text = format!("edgeward {name}: {does}\n\nusage: edgeward {name}{usage}\n\n");
    self::options(&mut text, options);
    self::options(&mut text, &[("--help", "this")]);
    text.push_str(&format!("\nexample: {example}\n"));
    text
}

/// A line each, with what stands behind it.
fn options(text: &mut String, options: &[(&str, &str)]) {
    for (name, does) in options {
        let short = match *name {
            "--config" => "-c, ",
            "--help" => "-h, ",
            "--version" => "-V, ",
            _ => "    ",
        };
        // The same words as in a complaint: "a time: --for 60s".
        let value = OPTIONS.iter().find(|(option, _)| option == name).and_then(|(_, needs)| *needs);
        let given = value.and_then(|needs| needs.split_once(": ")).map_or(*name, |(_, example)| example);
        let given = if *name == "--config" { "--config FILE" } else { given };
        text.push_str(&format!("  {short}{given:<18} {does}\n"));
        if *name == "--config" {
            for line in [
                &format!("without it {DEFAULT_PATH} if there is one,"),
                "else local servers and clouds are looked for",
            ] {
                text.push_str(&format!("{:24} {line}\n", ""));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command_and_code() {
        let all = help(None);
        for word in ["--config", "--version", "78"].into_iter().chain(COMMANDS.iter().map(|about| about.name))
        {
            assert!(all.contains(word) || word == "demo", "{word}");
        }
    }

    /// Each option that a command takes, and an example that it takes.
    #[test]
    fn help_of_a_command_has_its_own_options_and_an_example() {
        for About { name, usage, options, example, .. } in &COMMANDS {
            let said = help(Some(name));
            assert!(
                said.starts_with(&format!("edgeward {name}: "))
                    && said.contains(&format!("\nusage: edgeward {name}{usage}\n")),
                "{said}"
            );
            let lines =
                |option: &str| said.lines().filter(|line| line.trim_start().starts_with(option)).count();
            for (option, _) in
                OPTIONS.iter().filter(|(option, _)| *option != "--help" && *option != "--config")
            {
                assert_eq!(
                    lines(option),
                    usize::from(options.iter().any(|(own, _)| own == option)),
                    "{name} {option}"
                );
            }
            assert!(said.contains(&format!("\nexample: {example}\n")), "{said}");
            let parsed = super::super::parse(example.split_whitespace().skip(1));
            assert!(parsed.is_ok() || *name == "demo", "{example}: {parsed:?}");
            assert!(said.lines().all(|line| line.chars().count() <= 110), "{said}");
        }
    }
}
