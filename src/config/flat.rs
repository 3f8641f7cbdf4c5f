//! What each part of a configuration puts into the flat list: all of it, so that no new field can be forgotten.
//!
//! Every struct is taken apart without `..` on purpose.

use super::describe::{Flat, Is, word};
use super::*;
use Is::{Bytes, Flag, List, Money, Number, Secret as Hidden, Share, Shown, Text, Time, Unset};

impl Flat {
    pub(super) fn config(&mut self, config: &Config) {
        let Config {
            source,
            listen,
            admin_listen,
            allow_anonymous,
            hosts,
            model_name,
            on_empty_stop,
            commit_on,
            heartbeat,
            ollama_writes,
            drop_anonymous_reasoning,
            log_prompts,
            lock_memory,
            tls,
            cors_origins,
            keys,
            limits,
            deadlines,
            targets,
            router,
            routes,
            groups,
            health,
            retry,
            hedge,
            queue,
            elsewhere,
            sticky,
            translation,
            images,
            on_break,
            resume,
            repetition,
            rollout,
            memory,
        } = config;
        let listen: Vec<String> = listen.iter().map(ToString::to_string).collect();
        let source = source.as_ref().map(|path| path.display());
        let admin = admin_listen.as_ref().map(|path| path.display());
        let lock = match lock_memory {
            LockMemory::Auto => "auto",
            LockMemory::On => "true",
            LockMemory::Off => "false",
        };
        self.all(
            "",
            &[
                ("file", shown(source.as_ref())),
                ("listen", List(&listen)),
                ("admin_listen", shown(admin.as_ref())),
                ("allow_anonymous", Flag(*allow_anonymous)),
                ("hosts", List(hosts)),
                ("model_name", word(schema::MODEL_NAMES, model_name)),
                ("on_empty_stop", word(schema::EMPTY_STOPS, on_empty_stop)),
                ("commit_on", word(schema::COMMITS, commit_on)),
                ("heartbeat", time(*heartbeat)),
                ("ollama_writes", Flag(*ollama_writes)),
                ("drop_anonymous_reasoning", Flag(*drop_anonymous_reasoning)),
                ("log_prompts", Flag(*log_prompts)),
                ("lock_memory", Text(lock)),
                ("cors.origins", List(cors_origins)),
            ],
        );
        if let Some(ServerTls { cert, key }) = tls {
            self.all("tls", &[("cert", Shown(&cert.display())), ("key", Shown(&key.display()))]);
        }
        self.limits(limits);
        self.deadlines(deadlines);
        let Router { groups: order, region } = router;
        self.all("router", &[("groups", List(order)), ("region", text(region.as_deref()))]);
        self.health(health);
        self.ways(retry, hedge, queue, elsewhere, sticky);
        let Translation { strict } = translation;
        self.all("translation", &[("strict", Flag(*strict))]);
        self.images(images);
        self.put("", "on_break", word(schema::BREAKS, on_break));
        let Resume { by_header, continue_max_tokens } = resume;
        let resume = [("by_header", Flag(*by_header)), ("continue_max_tokens", number(*continue_max_tokens))];
        self.all("resume", &resume);
        let Repetition { enabled, times, bytes } = repetition;
        let repetition = [("enabled", Flag(*enabled)), ("times", number(*times)), ("bytes", number(*bytes))];
        self.all("repetition", &repetition);
        if let Some(Rollout { share, hold, min_samples }) = rollout {
            self.all(
                "rollout",
                &[("share", Share(*share)), ("hold", Time(*hold)), ("min_samples", number(*min_samples))],
            );
        }
        self.memory(memory);
        for key in keys {
            self.key(key);
        }
        for target in targets {
            self.target(target);
        }
        for Group { name, deadlines, max_retries } in groups {
            self.owned("group", name);
            self.put("", "max_retries", max_retries.map_or(Unset, number));
            self.overrides(deadlines);
        }
        for route in routes {
            self.route(route);
        }
    }

    fn limits(&mut self, limits: &Limits) {
        let Limits {
            max_body,
            body_memory,
            gate_buffer,
            gated_streams,
            answer_buffer,
            answer_memory,
            connections,
            max_headers,
            header_bytes,
            header_time,
            idle_time,
            body_time,
            request_time,
            write_time,
            queue_time,
            drain,
        } = limits;
        self.all(
            "limits",
            &[
                ("max_body", Bytes(*max_body)),
                ("body_memory", Bytes(*body_memory)),
                ("gate_buffer", Bytes(*gate_buffer)),
                ("gated_streams", Number(*gated_streams as u64)),
                ("answer_buffer", Bytes(*answer_buffer)),
                ("answer_memory", Bytes(*answer_memory)),
                ("connections", Number(*connections as u64)),
                ("max_headers", Number(*max_headers as u64)),
                ("header_bytes", Bytes(*header_bytes)),
                ("header_time", Time(*header_time)),
                ("idle_time", Time(*idle_time)),
                ("body_time", Time(*body_time)),
                ("request_time", Time(*request_time)),
                ("write_time", Time(*write_time)),
                ("queue_time", Time(*queue_time)),
                ("drain", Time(*drain)),
            ],
        );
    }

    fn deadlines(&mut self, deadlines: &Deadlines) {
        let Deadlines { connect, first_token, first_token_per_1k, between_tokens, load, answer, total } =
            *deadlines;
        self.overrides(&DeadlineOverrides {
            connect: Some(connect),
            first_token: Some(first_token),
            first_token_per_1k: Some(first_token_per_1k),
            between_tokens: Some(between_tokens),
            load: Some(load),
            answer: Some(answer.unwrap_or(total)),
            total: Some(total),
        });
    }

    pub(super) fn overrides(&mut self, deadlines: &DeadlineOverrides) {
        let DeadlineOverrides {
            connect,
            first_token,
            first_token_per_1k,
            between_tokens,
            load,
            answer,
            total,
        } = *deadlines;
        self.all(
            "deadlines",
            &[
                ("connect", time(connect)),
                ("first_token", time(first_token)),
                ("first_token_per_1k", time(first_token_per_1k)),
                ("between_tokens", time(between_tokens)),
                ("load", time(load)),
                ("answer", time(answer)),
                ("total", time(total)),
            ],
        );
    }

    fn health(&mut self, health: &Health) {
        let Health { breaker, degrade, latency, probe } = health;
        let Breaker {
            enabled,
            window,
            min_samples,
            failure_rate,
            consecutive,
            cooldown,
            cooldown_max,
            trials,
            recovery,
        } = breaker;
        self.all(
            "breaker",
            &[
                ("enabled", Flag(*enabled)),
                ("window", Time(*window)),
                ("min_samples", number(*min_samples)),
                ("failure_rate", Share(*failure_rate)),
                ("consecutive", number(*consecutive)),
                ("cooldown", Time(*cooldown)),
                ("cooldown_max", Time(*cooldown_max)),
                ("trials", number(*trials)),
                ("recovery", Time(*recovery)),
            ],
        );
        let Degrade { enabled, above, below, least } = degrade;
        self.all(
            "degrade",
            &[
                ("enabled", Flag(*enabled)),
                ("above", Share(*above)),
                ("below", Share(*below)),
                ("least", Share(*least)),
            ],
        );
        let Latency { enabled, times, first_token, gap, min_samples, out_after, back_after, trickle } =
            latency;
        self.all(
            "latency",
            &[
                ("enabled", Flag(*enabled)),
                ("times", number(*times)),
                ("first_token", Time(*first_token)),
                ("gap", Time(*gap)),
                ("min_samples", number(*min_samples)),
                ("out_after", Time(*out_after)),
                ("back_after", Time(*back_after)),
                ("trickle", Time(*trickle)),
            ],
        );
        let Probe { enabled, every, every_cloud, timeout, down_after } = probe;
        self.all(
            "probe",
            &[
                ("enabled", Flag(*enabled)),
                ("every", Time(*every)),
                ("every_cloud", Time(*every_cloud)),
                ("timeout", Time(*timeout)),
                ("down_after", number(*down_after)),
            ],
        );
    }

    fn ways(&mut self, retry: &Retry, hedge: &Hedge, queue: &Queue, elsewhere: &Elsewhere, sticky: &Sticky) {
        let Retry { first, backoff, jitter, budget } = retry;
        self.all(
            "retry",
            &[
                ("first", word(schema_policy::FIRSTS, first)),
                ("backoff", Time(*backoff)),
                ("jitter", Time(*jitter)),
                ("budget", Share(*budget)),
            ],
        );
        let Hedge { enabled, share } = hedge;
        self.all("hedge", &[("enabled", Flag(*enabled)), ("share", Share(*share))]);
        let Queue { length, time } = queue;
        self.all("queue", &[("length", Number(*length as u64)), ("time", Time(*time))]);
        let Elsewhere { lan, cloud } = elsewhere;
        self.all("elsewhere.after", &[("lan", after(lan)), ("cloud", after(cloud))]);
        let Sticky { enabled, idle, away } = sticky;
        self.all("sticky", &[("enabled", Flag(*enabled)), ("idle", Time(*idle)), ("away", Time(*away))]);
    }

    fn memory(&mut self, memory: &Memory) {
        #[rustfmt::skip]
        let Memory {
            enabled, board, gpu_shared, huge_pages, fill_per_second, floor, reserve, amber, red, hold, interval, cgroup,
            warm_up,
        } = memory;
        let cgroup = cgroup.as_ref().map(|path| path.display());
        self.all(
            "memory",
            &[
                ("enabled", Flag(*enabled)),
                ("board", word(schema_policy::BOARDS, board)),
                ("gpu", word(schema_policy::GPUS, gpu_shared)),
                ("huge_pages", huge_pages.map_or(Unset, Flag)),
                ("fill_per_second", fill_per_second.map_or(Unset, Bytes)),
                ("floor", floor.map_or(Unset, Bytes)),
                ("reserve", reserve.map_or(Unset, Bytes)),
                ("amber", Time(*amber)),
                ("red", Time(*red)),
                ("hold", Time(*hold)),
                ("interval", Time(*interval)),
                ("cgroup", shown(cgroup.as_ref())),
                ("warm_up", Flag(*warm_up)),
            ],
        );
    }

    fn key(&mut self, key: &ClientKey) {
        let ClientKey { name, sha256, operator, local_only, priority, budget } = key;
        self.owned("key", name);
        self.all(
            "",
            &[
                ("key", Hidden(sha256)),
                ("operator", Flag(*operator)),
                ("local_only", egress(*local_only)),
                ("priority", word(schema_policy::PRIORITIES, priority)),
            ],
        );
        self.budget(budget);
    }

    pub(super) fn budget(&mut self, budget: &Budget) {
        let Budget { requests_per_minute, tokens_per_minute, money_per_day } = *budget;
        self.all(
            "budget",
            &[
                ("requests_per_minute", requests_per_minute.map_or(Unset, number)),
                ("tokens_per_minute", tokens_per_minute.map_or(Unset, Number)),
                ("money_per_day", money_per_day.map_or(Unset, Money)),
            ],
        );
    }
}

pub(super) fn number(number: u32) -> Is<'static> {
    Number(number.into())
}

pub(super) fn time(time: Option<Duration>) -> Is<'static> {
    time.map_or(Unset, Time)
}

fn after(after: &After) -> Is<'static> {
    match after {
        After::Time(time) => Time(*time),
        After::Never => Text("never"),
    }
}

pub(super) fn text(text: Option<&str>) -> Is<'_> {
    text.map_or(Unset, Text)
}

pub(super) fn shown<T: std::fmt::Display>(value: Option<&T>) -> Is<'_> {
    value.map_or(Unset, |value| Shown(value))
}

pub(super) fn egress(egress: Egress) -> Is<'static> {
    match egress {
        Egress::Anywhere => Unset,
        Egress::Lan => Text("lan"),
        Egress::Box => Text("true"),
    }
}
