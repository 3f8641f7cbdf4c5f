//! What targets and routes put into the flat list.

use super::describe::{Flat, Is, word};
use super::flat::{egress, number, shown, text, time};
use super::plan::conditions;
use super::*;
use Is::{Flag, List, Money, Secret as Hidden, Shown, Text, Unset};

impl Flat {
    pub(super) fn target(&mut self, target: &Target) {
        let Target {
            name,
            kind,
            url,
            place,
            group,
            region,
            weight,
            max_retries,
            key,
            forward_key,
            models,
            embeddings,
            context,
            deadlines,
            roots,
            include_usage,
            collect,
            spare,
            max_concurrent,
            capabilities,
            probe,
            process,
            metered,
            price,
            budget,
            discovered,
        } = target;
        self.owned("target", name);
        let file = match roots {
            Roots::File(path) => Some(path.display()),
            Roots::Bundled | Roots::System => None,
        };
        let bundled = match roots {
            Roots::Bundled => Text("bundled"),
            Roots::System => Text("system"),
            Roots::File(_) => Unset,
        };
        self.all(
            "",
            &[
                ("kind", Text(kind.as_str())),
                ("url", Shown(url)),
                ("place", Text(place.as_str())),
                ("group", Text(group)),
                ("region", text(region.as_deref())),
                ("weight", number(*weight)),
                ("max_retries", number(*max_retries)),
                ("key", key.as_ref().map_or(Unset, |key| Hidden(key.expose().as_bytes()))),
                ("forward_key", Flag(*forward_key)),
                ("embeddings", text(embeddings.as_deref())),
                ("context", context.map_or(Unset, number)),
                ("roots", bundled),
                ("ca_file", shown(file.as_ref())),
                ("include_usage", Flag(*include_usage)),
                ("collect", Flag(*collect)),
                ("spare", Flag(*spare)),
                ("max_concurrent", max_concurrent.map_or(Unset, number)),
                ("metered", Flag(*metered)),
                ("discovered", Flag(*discovered)),
            ],
        );
        let ModelMap { entries } = models;
        for (asked, given) in entries {
            self.put("models", &format!("{asked:?}"), Text(given));
        }
        self.overrides(deadlines);
        let Capabilities { tools, images, json } = *capabilities;
        for (what, can) in [("tools", tools), ("images", images), ("json", json)] {
            self.put("capabilities", what, can.map_or(Unset, Flag));
        }
        let TargetProbe { off, every, path } = probe;
        self.put("", "probe", Flag(!off));
        self.all("probe", &[("every", time(*every)), ("path", text(path.as_deref()))]);
        match process {
            Some(ProcessHint::Unit(name)) => self.put("process", "unit", Text(name)),
            Some(ProcessHint::PidFile(path)) => self.put("process", "pid_file", Shown(&path.display())),
            None => {}
        }
        if let Some(Price { input, output, assumed }) = *price {
            let sides = [("input", Money(input)), ("output", Money(output)), ("assumed", Flag(assumed))];
            self.all("price", &sides);
        }
        self.budget(budget);
    }

    pub(super) fn route(&mut self, route: &Route) {
        self.owned("route", &conditions(route));
        let Route {
            model,
            headers: _,
            keys: _,
            hours: _,
            local_only,
            hedge,
            groups,
            deadlines,
            heartbeat,
            commit_on,
            on_empty_stop,
            on_break,
            model_name,
        } = route;
        self.all(
            "",
            &[
                // Its conditions are its name.
                ("model", Text(model)),
                ("groups", groups.as_ref().map_or(Unset, |groups| List(groups))),
                ("local_only", egress(*local_only)),
                ("hedge", hedge.map_or(Unset, Flag)),
                ("heartbeat", time(*heartbeat)),
                ("commit_on", commit_on.map_or(Unset, |on| word(schema::COMMITS, &on))),
                ("on_empty_stop", on_empty_stop.map_or(Unset, |on| word(schema::EMPTY_STOPS, &on))),
                ("on_break", on_break.map_or(Unset, |on| word(schema::BREAKS, &on))),
                ("model_name", model_name.map_or(Unset, |name| word(schema::MODEL_NAMES, &name))),
            ],
        );
        self.overrides(deadlines);
    }
}
