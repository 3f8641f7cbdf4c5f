//! Money is exact and cannot be overshot far, minutes hold, days turn once, and the file says what the books say.

use proptest::prelude::*;

use super::*;

const DAY: u64 = 20_787;
const PRICE: Price = Price { input: 5_000_000, output: 25_000_000, assumed: true };

fn at(day: u64) -> When {
    When { now: crate::time::now(), utc: Some(day * DAY_SECS + 60) }
}

fn unknown() -> When {
    When { now: crate::time::now(), utc: None }
}

fn money(micros: Micros) -> Budget {
    Budget { money_per_day: Some(micros), ..Budget::default() }
}

/// A key without bounds and a cloud with `budget`.
fn books(budget: Budget) -> (Books, Account, Account) {
    let mut books = Books::default();
    let accounts =
        books.configure([(Subject::Key("laptop"), Budget::default()), (Subject::Target("cloud"), budget)]);
    (books, accounts[0], accounts[1])
}

/// Spends as many micros.
fn spend(books: &mut Books, target: Account, micros: u64, when: When) {
    let price = Price { input: 1_000_000, output: 0, assumed: false };
    let hold = books.begin(None, target, Estimate { input: micros, output_max: Some(0) }, Some(price), when);
    assert_eq!(books.end(hold, Used::Tokens { input: micros, output: 0 }, when), micros);
}

proptest! {
    #[test]
    fn money_is_exact_and_rounded_up(
        input in 0..2_000_000_u64,
        output in 0..2_000_000_u64,
        price_in in 0..200_000_000_u64,
        price_out in 0..200_000_000_u64,
    ) {
        let micros = cost(Price { input: price_in, output: price_out, assumed: false }, input, output);
        let exact = u128::from(input) * u128::from(price_in) + u128::from(output) * u128::from(price_out);
        prop_assert!(u128::from(micros) * 1_000_000 >= exact);
        prop_assert!(u128::from(micros) * 1_000_000 < exact + 1_000_000);
    }

    /// However many run at once: the day's money is overshot by one attempt's estimate at most, no minute holds more
    /// requests than its budget, and in the end nothing is held any more.
    #[test]
    fn attempts_side_by_side_keep_to_the_budgets(
        cap in 1..3_000_000_u64,
        per_minute in 1..20_u32,
        tokens in 1..100_000_u64,
        // Pause, begin or end which, and how much of its estimate the attempt used, in hundredths; 101: unknown.
        steps in prop::collection::vec((0..9000_u64, any::<bool>(), any::<prop::sample::Index>(), 0..=101_u64), 1..150),
    ) {
        let budget = Budget {
            requests_per_minute: Some(per_minute),
            tokens_per_minute: Some(tokens),
            money_per_day: Some(cap),
        };
        let (mut books, key, cloud) = books(budget);
        let mut when = at(DAY);
        let estimate = Estimate { input: 2000, output_max: Some(4000) };
        let (mut holds, mut begun, mut used_tokens, mut spent) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let minute = |at: Instant, now: Instant| now.duration_since(at) < Duration::from_secs(60);
        for (pause, begin, which, hundredths) in steps {
            when.now += Duration::from_millis(pause);
            if begin {
                match books.allows(cloud, true, when) {
                    Ok(()) => {
                        holds.push(books.begin(Some(key), cloud, estimate, Some(PRICE), when));
                        begun.push(when.now);
                        let lately = begun.iter().filter(|at| minute(**at, when.now)).count();
                        prop_assert!(lately <= per_minute as usize);
                    }
                    Err(Exhausted { held: true, what, again, .. }) => {
                        prop_assert!(!holds.is_empty() && again.is_none() && what != What::Requests);
                    }
                    Err(Exhausted { what, again, .. }) => {
                        // When it says, there is some again; not before.
                        let again = again.unwrap();
                        let due = when.now + again;
                        if what == What::Money {
                            prop_assert!(spent >= cap);
                        } else {
                            let early = When { now: due - Duration::from_nanos(1), ..when };
                            prop_assert!(books.allows(cloud, false, early).is_err());
                            // `allows` moved the window on: the pause has happened.
                            when.now = due;
                            let then = books.allows(cloud, false, when);
                            prop_assert!(then.is_ok() || then.is_err_and(|e| e.held), "{then:?}");
                        }
                    }
                }
            } else if !holds.is_empty() {
                let hold = holds.swap_remove(which.index(holds.len()));
                let (input, output) = if hundredths > 100 { (2000, 4000) } else { (20 * hundredths, 40 * hundredths) };
                let used = if hundredths > 100 { Used::Unknown } else { Used::Tokens { input, output } };
                spent += books.end(hold, used, when);
                used_tokens.push((when.now, input + output));
            }
            let usage = books.usage(cloud, when);
            prop_assert_eq!(usage.spent, spent);
            prop_assert_eq!(usage.held, holds.len() as u64 * cost(PRICE, 2000, 4000));
            prop_assert!(usage.spent + usage.held < cap + cost(PRICE, 2000, 4000));
            let lately: u64 = used_tokens.iter().filter(|(at, _)| minute(*at, when.now)).map(|(_, n)| n).sum();
            prop_assert!(lately < tokens + 6000);
        }
        for hold in holds {
            let _nothing = books.end(hold, Used::Nothing, when);
        }
        for account in [key, cloud] {
            let usage = books.usage(account, when);
            prop_assert_eq!((usage.held, usage.held_tokens, usage.spent), (0, 0, spent));
        }
    }

    #[test]
    fn the_file_says_what_the_books_say_and_a_part_of_it_says_nothing(
        spent in prop::collection::btree_map(("[a-z0-9_-]{1,12}", any::<bool>()), 1..u64::MAX / 2, 0..12),
        cut in any::<prop::sample::Index>(),
        same_day in any::<bool>(),
    ) {
        let subjects: Vec<_> = spent
            .keys()
            .map(|(name, key)| if *key { Subject::Key(name) } else { Subject::Target(name) })
            .collect();
        let mut books = Books::default();
        let accounts = books.configure(subjects.iter().map(|subject| (*subject, Budget::default())));
        for (account, micros) in accounts.iter().zip(spent.values()) {
            spend(&mut books, *account, *micros, at(DAY));
        }
        books.turn_to(at(DAY).utc);
        let text = books.to_text();
        let today = if same_day { at(DAY) } else { at(DAY + 1) };
        let mut again = Books::from_text(&text, today.utc).unwrap();
        let accounts = again.configure(subjects.iter().rev().map(|subject| (*subject, Budget::default())));
        for (account, micros) in accounts.iter().zip(spent.values().rev()) {
            prop_assert_eq!(again.usage(*account, today).spent, if same_day { *micros } else { 0 });
        }
        if same_day {
            prop_assert_eq!(again.to_text().len(), text.len());
        }
        prop_assert!(Books::from_text(&text[..cut.index(text.len())], today.utc).is_err());
    }

    #[test]
    fn garbage_is_no_book(text in "(edgeward-books 1\n)?(day [0-9-]{0,22}\n)?((key|target|x)? ?[0-9+]{0,22} ?[a-z]{0,70}\n){0,4}(end\n)?", utc in any::<u64>()) {
        if let Ok(books) = Books::from_text(&text, Some(utc)) {
            prop_assert!(text.starts_with("edgeward-books 1\nday ") && text.ends_with("\nend\n"));
            prop_assert!(books.entries.len() <= text.lines().count() - 3);
        }
    }
}

#[test]
fn what_is_wrong_with_a_file_is_told() {
    let whole = "edgeward-books 1\nday 20787\nkey 5 laptop\ntarget 7 cloud\nend\n";
    assert!(Books::from_text(whole, Some(DAY * DAY_SECS)).is_ok());
    for (from, to, says) in [
        ("books 1", "books 2", "does not begin with `edgeward-books 1`"),
        ("end\n", "", "does not end with a line `end`: it was cut off"),
        ("day 20787", "day 1e3", "has a line 2 that edgeward did not write"),
        ("key 5 laptop", "key -5 laptop", "has a line 3 that edgeward did not write"),
        ("target 7 cloud", "end", "has a line 4 that edgeward did not write"),
        ("target 7 cloud", "key 7 laptop", "names somebody twice"),
    ] {
        assert_eq!(Books::from_text(&whole.replace(from, to), None).unwrap_err(), says);
    }
    let long = format!("edgeward-books 1\nday 1\n{}end\n", "key 1 a\n".repeat(limits::BOOKS_BYTES_MAX));
    assert_eq!(Books::from_text(&long, None).unwrap_err(), "is longer than 2097152 bytes");
}

#[test]
fn a_day_turns_once_and_a_wrong_clock_forgives_nothing() {
    // What is spent after each look: (day, spent then, spent in all afterwards).
    let run = |steps: &[(Option<u64>, u64, u64)]| {
        let (mut books, _, cloud) = books(money(100));
        for (step, (day, more, expected)) in steps.iter().enumerate() {
            let when = day.map_or_else(unknown, at);
            spend(&mut books, cloud, *more, when);
            assert_eq!(books.usage(cloud, when).spent, *expected, "step {step} of {steps:?}");
        }
    };
    run(&[(Some(DAY), 5, 5), (Some(DAY), 5, 10), (Some(DAY + 1), 3, 3), (Some(DAY + 9), 0, 0)]);
    // The clock was lost, as over a restart without a battery: the day stays, and what was spent may be of the new one.
    run(&[(Some(DAY), 5, 5), (None, 3, 8), (Some(DAY), 0, 8), (Some(DAY + 1), 0, 0)]);
    run(&[(Some(DAY), 5, 5), (None, 3, 8), (None, 1, 9), (Some(DAY + 1), 2, 6), (Some(DAY + 2), 0, 0)]);
    // Never known until now.
    run(&[(None, 4, 4), (Some(DAY), 1, 5), (Some(DAY + 1), 0, 0)]);
    // It was years ahead, and is put right: not a new day, but the next one is.
    run(&[(Some(DAY + 4000), 4, 4), (Some(DAY), 1, 5), (Some(DAY + 1), 0, 0)]);
}

#[test]
fn a_restart_forgives_nothing_on_the_same_day_or_an_unknown_one() {
    let (mut books, _, cloud) = books(money(10));
    assert!(!books.take_changed());
    spend(&mut books, cloud, 10, at(DAY));
    assert!(books.take_changed() && !books.take_changed());
    let restored = |when: When| {
        let mut books = Books::from_text(&books.to_text(), when.utc).unwrap();
        assert!(!books.take_changed());
        let cloud = books.configure([(Subject::Target("cloud"), money(10))])[0];
        (books.allows(cloud, true, when), books.allows(cloud, true, at(DAY + 1)))
    };
    assert!(matches!(restored(at(DAY)), (Err(_), Ok(()))));
    assert!(matches!(restored(unknown()), (Err(_), Ok(()))));
    assert!(matches!(restored(at(DAY + 1)), (Ok(()), Ok(()))));
}

#[test]
fn a_reload_forgives_nothing_and_names_that_go_are_bounded() {
    let (mut books, key, cloud) = books(money(10));
    spend(&mut books, cloud, 12, at(DAY));
    let hold = books.begin(Some(key), cloud, Estimate { input: 5, output_max: None }, None, at(DAY));
    books.configure([(Subject::Key("cloud"), money(5))]);
    let again = books.configure([(Subject::Target("cloud"), money(12)), (Subject::Key("laptop"), money(12))]);
    assert_eq!(again, [cloud, key]);
    assert!(books.allows(cloud, true, at(DAY)).is_err() && books.allows(key, true, at(DAY)).is_ok());
    for n in 0..2 * limits::BOOKS_ACCOUNTS {
        books.configure([(Subject::Key(&format!("k{n}")), Budget::default())]);
    }
    assert_eq!(books.entries.len(), limits::BOOKS_ACCOUNTS);
    assert_eq!(books.usage(cloud, at(DAY)).spent, 12, "who spent most is forgotten last");
    books.end(hold, Used::Nothing, at(DAY));
    assert_eq!(books.usage(key, at(DAY)).held_tokens, 0);
}

#[test]
fn what_is_free_needs_no_money_and_a_request_counts_once_for_its_key() {
    let mut books = Books::default();
    let all = Budget { requests_per_minute: Some(2), ..money(10) };
    let [key, cloud, local] = books.configure([
        (Subject::Key("laptop"), all),
        (Subject::Target("cloud"), Budget::default()),
        (Subject::Target("box"), Budget::default()),
    ])[..] else {
        panic!()
    };
    let when = at(DAY);
    let estimate = Estimate { input: 10, output_max: Some(10) };
    books.request(key, when);
    let free = books.begin(Some(key), local, estimate, None, when);
    assert_eq!(books.end(free, Used::Unknown, when), 0);
    let paid = books.begin(Some(key), cloud, estimate, Some(PRICE), when);
    assert_eq!(
        books.allows(key, true, when).unwrap_err().in_words(),
        "has set all that is left of its 0.00001 a day aside for requests under way"
    );
    assert_eq!(books.end(paid, Used::Unknown, when), 300);
    assert_eq!(books.usage(key, when), Usage { requests: 1, tokens: 40, spent: 300, ..Usage::default() });
    assert_eq!(books.usage(cloud, when).requests, 1);
    assert!(books.allows(key, true, when).is_err(), "a cloud");
    assert!(books.allows(key, false, when).is_ok(), "the box");
    books.request(key, when);
    assert_eq!(books.allows(key, false, when).unwrap_err().what, What::Requests);
    assert_eq!(books.allows(key, true, when).unwrap_err().what, What::Money, "what takes longest");
}

#[test]
fn answers_of_unknown_length_are_taken_to_be_as_usual() {
    let (mut books, _, cloud) = books(Budget::default());
    let when = at(DAY);
    let held = |books: &mut Books, max| {
        let hold = books.begin(None, cloud, Estimate { input: 7, output_max: max }, None, when);
        let held = books.usage(cloud, when).held_tokens;
        books.end(hold, Used::Nothing, when);
        held
    };
    assert_eq!(held(&mut books, None), 7 + limits::ANSWER_TOKENS);
    assert_eq!(held(&mut books, Some(50)), 57);
    for _ in 0..100 {
        let hold = books.begin(None, cloud, Estimate { input: 7, output_max: None }, None, when);
        books.end(hold, Used::Tokens { input: 7, output: 200 }, when);
    }
    let learned = held(&mut books, None) - 7;
    assert!((200..=202).contains(&learned), "{learned}");
}

#[test]
fn figures_that_no_server_should_send_do_no_harm() {
    let (mut books, key, cloud) = books(money(u64::MAX));
    let when = at(DAY);
    let price = Price { input: u64::MAX, output: u64::MAX, assumed: false };
    for _ in 0..3 {
        let most = Estimate { input: u64::MAX, output_max: Some(u64::MAX) };
        let hold = books.begin(Some(key), cloud, most, Some(price), when);
        assert_eq!(books.end(hold, Used::Tokens { input: u64::MAX, output: u64::MAX }, when), u64::MAX);
    }
    assert!(books.allows(cloud, true, when).is_err());
    assert!(books.allows(cloud, true, at(DAY + 1)).is_ok());
}

#[test]
fn it_is_told_in_words() {
    let said = |what, limit, held, again: Option<u64>| {
        Exhausted { what, limit, held, again: again.map(Duration::from_millis) }.in_words()
    };
    assert_eq!(said(What::Money, 5_000_000, false, Some(9)), "has used its 5.00 a day; until midnight UTC");
    assert_eq!(
        said(What::Money, 5_000_000, false, None),
        "has used its 5.00 a day; until this box's clock is set"
    );
    assert_eq!(
        said(What::Requests, 60, false, Some(11_001)),
        "has used its 60 requests a minute; again in 12 s"
    );
    assert_eq!(
        said(What::Tokens, 9000, true, None),
        "has set all that is left of its 9000 tokens a minute aside for requests under way"
    );
    assert_eq!(said(What::Requests, 0, false, None), "has a budget of 0 requests a minute");
    for (micros, shown) in
        [(0, "0.00"), (1, "0.000001"), (10_000, "0.01"), (1_234_500, "1.2345"), (7_000_000, "7.00")]
    {
        assert_eq!(in_money(micros), shown);
    }
    let (mut books, _, cloud) = books(money(5));
    spend(&mut books, cloud, 5, at(DAY));
    assert_eq!(
        books.allows(cloud, true, at(DAY)).unwrap_err().again,
        Some(Duration::from_secs(DAY_SECS - 60))
    );
    assert_eq!(books.allows(cloud, true, unknown()).unwrap_err().again, None);
}
