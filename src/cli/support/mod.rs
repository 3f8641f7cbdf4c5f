//! `edgeward support`: one text file with what a bug report needs, and without keys and prompts.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::ask::{Running, ask, get};
use super::{EXIT_FAILED, EXIT_GOOD, check};
use crate::config::{self, Config, Env};
use crate::observe;
use crate::time;

mod system;

/// The unit that is asked about.
const UNIT: &str = "edgeward.service";
/// What is told of it; no property that holds an environment.
const PROPERTIES: &str = "Id,LoadState,ActiveState,SubState,Result,ExecMainStatus,NRestarts,ActiveEnterTimestamp,\
                          FragmentPath,DropInPaths,NeedDaemonReload,MemoryCurrent,MemoryPeak,MemoryMax,LimitNOFILE,\
                          LimitMEMLOCK,OOMScoreAdjust,StatusText";
/// Of the unit's journal.
const JOURNAL_LINES: &str = "--lines=200";

/// Writes the file, at `output` or with a name by the date in the current folder; `-` is `out`. Returns the exit code.
/// What cannot be had (no running edgeward, no systemd) is named in its place, and is no failure.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn support(
    path: Option<&Path>,
    output: Option<&Path>,
    env: &Env<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let date = observe::utc(time::wall());
    let bundle = bundle(path, env, &date);
    if output == Some(Path::new("-")) {
        out.write_all(bundle.as_bytes())?;
        return Ok(EXIT_GOOD);
    }
    let name = match output {
        Some(path) => path.to_owned(),
        None => PathBuf::from(format!("edgeward-support-{}.txt", date.replace(':', ""))),
    };
    // A new file: no link is followed, and nobody has opened it before its mode was set.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name);
    match made.and_then(|mut file| file.write_all(bundle.as_bytes())) {
        Ok(()) => {
            writeln!(out, "{}", name.display())?;
            writeln!(err, "edgeward: without keys and prompts; read it before you send it on all the same")?;
            Ok(EXIT_GOOD)
        }
        Err(error) => {
            writeln!(
                err,
                "edgeward: cannot write {}: {error}; name a new file with --output, or - for the terminal",
                name.display()
            )?;
            Ok(EXIT_FAILED)
        }
    }
}

/// The whole text.
fn bundle(path: Option<&Path>, env: &Env<'_>, date: &str) -> String {
    // Where the file that was named cannot be read, one may still run in its usual place.
    let Running { config, problems } = Running::new(path, env).unwrap_or_else(|problems| {
        let config = config::discover(env, &[]).config;
        Running { config, problems }
    });
    let mut text = format!(
        "edgeward support, {date}\n\
         Keys and prompts are left out; names of hosts, targets, models and client keys are not, nor what targets \
         say in their errors.\n"
    );
    section(&mut text, "versions", &system::versions());
    // A running one may have another file, keys that are not here, or the routing of before a rollout.
    let in_use = match get(&config, "/edgeward/config", "text/plain") {
        Ok(lines) => format!("in use:\n{}", String::from_utf8_lossy(&lines)),
        Err(_) if problems.0.is_empty() => format!("as the file has it:\n{}", config::in_lines(&config)),
        Err(_) => "none runs, and the file has mistakes; see the check\n".to_owned(),
    };
    section(&mut text, "configuration", &in_use);
    let (mut said, mut wrong) = (Vec::new(), Vec::new());
    // Writing to a Vec does not fail.
    let _infallible = check(path, env, &mut said, &mut wrong);
    said.append(&mut wrong);
    section(&mut text, "check", &String::from_utf8_lossy(&said));
    for (name, endpoint) in [
        ("status", "/edgeward/status"),
        ("metrics", "/edgeward/metrics"),
        ("recent events", "/edgeward/events"),
    ] {
        let answer = get(&config, endpoint, "*/*");
        let answer = answer.map(|body| String::from_utf8_lossy(&body).into_owned());
        section(&mut text, name, &answer.unwrap_or_else(|why| format!("not to be had: {why}\n")));
    }
    section(&mut text, "last drill", &last_drill(&config));
    let show = [&format!("--property={PROPERTIES}"), "--no-pager", "--", UNIT];
    section(&mut text, "unit", &system::said("systemctl", &[&["show"][..], &show[..]].concat()));
    let journal = system::said(
        "journalctl",
        &["--no-pager", "--quiet", "--output=short-iso", JOURNAL_LINES, &format!("--unit={UNIT}")],
    );
    section(&mut text, "journal", &without_bodies(&journal));
    // None of them is printed anywhere; should one be all the same, by a log's words, then not in here.
    config.targets.iter().filter_map(|target| target.key.as_ref()).for_each(|key| key.hide_in(&mut text));
    text
}

fn section(text: &mut String, name: &str, content: &str) {
    text.push_str("\n== ");
    text.push_str(name);
    text.push('\n');
    text.push_str(if content.is_empty() { "nothing\n" } else { content });
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

fn last_drill(config: &Config) -> String {
    match ask(config, "GET", "/edgeward/drill", "*/*", "") {
        Ok(said) if said.status == 200 => String::from_utf8_lossy(&said.body).into_owned(),
        Ok(said) if said.status == 404 => "none since it was started\n".to_owned(),
        Ok(said) => format!("not to be had: it answers {}\n", said.status),
        Err(why) => format!("not to be had: {why}\n"),
    }
}

/// With `log_prompts` the journal has them: not here.
fn without_bodies(journal: &str) -> String {
    journal.lines().filter(|line| !line.contains("request_body")).fold(String::new(), |mut text, line| {
        text.push_str(line);
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_left_out() {
        let journal =
            "10:00 request_done request=r\n10:00 request_body request=r body=\"zebra\"\n10:01 started";
        assert_eq!(without_bodies(journal), "10:00 request_done request=r\n10:01 started\n");
    }

    #[test]
    fn no_property_of_the_unit_holds_an_environment() {
        assert!(!PROPERTIES.contains("nvironment") && !PROPERTIES.contains("ExecStart"));
    }
}
