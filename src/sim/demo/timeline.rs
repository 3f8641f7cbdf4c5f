//! A request's timeline: what the client saw on the left, what really happened on the right, as it happens.

use std::time::Duration;

/// Columns of the whole timeline.
pub const WIDTH: usize = 98;
/// Columns of the time: milliseconds with one decimal, and a blank.
const TIME: usize = 9;
/// Columns of what the client saw.
const CLIENT: usize = 41;
/// Columns of who did something, behind the rule.
const WHO: usize = 6;
/// Columns of what was done.
const DEED: usize = WIDTH - TIME - CLIENT - 3 - WHO;

/// How a text is painted, where there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// Less important.
    Dim,
    /// A heading.
    Bold,
    /// As it should be.
    Good,
    /// Not as it should be.
    Bad,
}

impl Style {
    /// `text`, painted if `colours` is set.
    #[must_use]
    pub fn paint(self, colours: bool, text: &str) -> String {
        let code = match self {
            Style::Plain => return text.to_owned(),
            Style::Dim => "2",
            Style::Bold => "1",
            Style::Good => "32",
            Style::Bad => "31",
        };
        if colours && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Rows, made one by one; each call gives what is to be printed next.
#[derive(Debug)]
pub struct Timeline {
    colours: bool,
    /// Columns used in a row of streamed text that is not ended yet.
    streaming: Option<usize>,
}

impl Timeline {
    /// A timeline, in colours or not.
    #[must_use]
    pub fn new(colours: bool) -> Self {
        Timeline { colours, streaming: None }
    }

    /// The columns' headings.
    #[must_use]
    pub fn head(&self) -> String {
        let text = format!("{:>8} {:<CLIENT$} │ {}", "ms", "what the client sees", "what really happens");
        Style::Dim.paint(self.colours, &text) + "\n"
    }

    /// The client saw this.
    pub fn client(&mut self, at: Duration, style: Style, text: &str) -> String {
        let mut out = self.end();
        for (n, line) in wrap(text, CLIENT).into_iter().enumerate() {
            let blank = " ".repeat(CLIENT.saturating_sub(width(&line)));
            let time = self.time((n == 0).then_some(at));
            out += &format!("{time}{}{blank}{}\n", style.paint(self.colours, &line), self.rule());
        }
        out
    }

    /// The client got this piece of text. It goes on where the last one ended.
    pub fn text(&mut self, at: Duration, piece: &str) -> String {
        // Nothing that a server sends may steer the reader's terminal.
        let piece: String = piece.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut out = String::new();
        for word in piece.split_inclusive(' ').flat_map(|word| chunks(word, CLIENT)) {
            let mut word = word.as_str();
            let full = |used: usize| used + width(word.trim_end()) > CLIENT;
            match self.streaming {
                None => {
                    out += &self.time(Some(at));
                    self.streaming = Some(0);
                }
                Some(used) if full(used) => {
                    out += &self.end();
                    out += &self.time(None);
                    self.streaming = Some(0);
                    word = word.trim_start();
                }
                Some(_) => {}
            }
            let used = self.streaming.unwrap_or_default();
            let fits: String = word.chars().take(CLIENT.saturating_sub(used)).collect();
            out += &Style::Good.paint(self.colours, &fits);
            self.streaming = Some(used + width(&fits));
        }
        out
    }

    /// `who` did this.
    pub fn deed(&mut self, at: Duration, who: &str, text: &str) -> String {
        let mut out = self.end();
        for (n, line) in wrap(text, DEED).into_iter().enumerate() {
            let (time, who) = if n == 0 { (Some(at), who) } else { (None, "") };
            let who = Style::Bold.paint(self.colours, &format!("{who:<WHO$}"));
            out += &format!("{}{:CLIENT$}{} {who}{line}\n", self.time(time), "", self.rule());
        }
        out
    }

    /// Ends a row of text, if one is open.
    pub fn end(&mut self) -> String {
        match self.streaming.take() {
            Some(used) => format!("{}{}\n", " ".repeat(CLIENT.saturating_sub(used)), self.rule()),
            None => String::new(),
        }
    }

    fn time(&self, at: Option<Duration>) -> String {
        let text = at.map(|at| format!("{:.1}", at.as_secs_f64() * 1000.0)).unwrap_or_default();
        Style::Dim.paint(self.colours, &format!("{text:>8} "))
    }

    fn rule(&self) -> String {
        Style::Dim.paint(self.colours, " │")
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// `text` in pieces of at most `most` characters.
fn chunks(text: &str, most: usize) -> Vec<String> {
    text.chars().collect::<Vec<_>>().chunks(most).map(|piece| piece.iter().collect()).collect()
}

/// `text` in lines of at most `most` characters, broken at blanks; all but the first are indented.
fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace().flat_map(|word| chunks(word, most - 2)) {
        let room = lines.last().is_some_and(|line| width(line) + 1 + width(&word) <= most);
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(&word),
            Some(line) if room => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::from_micros(12_345);

    #[test]
    fn columns_stand_under_each_other_and_none_is_too_wide() {
        let mut timeline = Timeline::new(false);
        let long =
            "x-edgeward-attempts: box:timeout_first_token,cloud:committed ".repeat(3) + &"y".repeat(200);
        let mut all = timeline.head();
        all += &timeline.client(AT, Style::Bad, &long);
        all += &timeline.text(AT, "one ");
        all += &timeline.text(AT, &"two ".repeat(30));
        all += &timeline.text(AT, &"z".repeat(100));
        all += &timeline.deed(AT, "box", &long);
        all += &timeline.end();
        for line in all.lines() {
            assert!(width(line) <= WIDTH, "{line}");
            assert_eq!(line.chars().position(|c| c == '│'), Some(TIME + CLIENT + 1), "{line}");
        }
        assert!(all.contains("    12.3 x-edgeward-attempts:"), "{all}");
        assert_eq!(all.matches('z').count(), 100, "{all}");
        assert_eq!(all.matches("two").count(), 30, "{all}");
    }

    #[test]
    fn text_flows_in_one_row_until_something_else_happens() {
        let mut timeline = Timeline::new(false);
        assert_eq!(timeline.text(AT, "[box]"), "    12.3 [box]");
        assert_eq!(timeline.text(AT, " the"), " the");
        let deed = timeline.deed(AT, "box", "done");
        assert_eq!(deed.lines().count(), 2);
        assert!(deed.ends_with("│ box   done\n"), "{deed}");
        assert_eq!(timeline.end(), "");
    }

    #[test]
    fn colours_only_where_asked_for_and_nothing_steers_the_terminal() {
        assert!(Timeline::new(true).deed(AT, "box", "done").contains("\x1b[1mbox"));
        let mut timeline = Timeline::new(false);
        let all = timeline.text(AT, "\x1b[31mred\n") + &timeline.client(AT, Style::Bad, "x");
        assert!(!all.contains('\x1b'), "{all:?}");
    }
}
