//! States and time of the model's scopes: a bar for each, in powers of ten.

use super::frame::{Bar, Margins, OURS, bars, draw, thousands};

const WIDTH: u32 = 1200;

/// The height of a bar with what is round it.
const BAR: u32 = 40;

/// A scope that was explored to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Its name.
    pub name: String,
    /// Distinct states.
    pub states: usize,
    /// How long it took.
    pub seconds: f64,
}

/// The plot, if there is a scope.
pub(super) fn plot(scopes: &[Scope], unverified: bool) -> Result<Option<String>, String> {
    if scopes.is_empty() {
        return Ok(None);
    }
    let mut scopes: Vec<&Scope> = scopes.iter().collect();
    scopes.sort_by_key(|scope| std::cmp::Reverse(scope.states));
    let (states, seconds) = scopes.iter().fold((0, 0.0), |(n, s), scope| (n + scope.states, s + scope.seconds));
    let most = scopes[0].states.max(10) as f64;
    let first = scopes[scopes.len() - 1].states.max(1) as f64;
    // The shortest bar begins a decade above the axis, so that it is seen.
    let (low, high) = ((first.log10() - 0.5).floor().max(0.0), most.log10());
    let names: Vec<String> = scopes.iter().map(|scope| scope.name.clone()).collect();
    let drawn: Vec<Bar> = scopes
        .iter()
        .enumerate()
        .map(|(group, scope)| Bar {
            group,
            place: (0, 1),
            value: scope.states as f64,
            label: format!("{} states, {}", thousands(scope.states), seconds_of(scope.seconds)),
            colour: OURS,
            strength: 1.0,
        })
        .collect();
    let decades = (low as i32)..=(high as i32);
    let ticks: Vec<(f64, String)> =
        decades.map(|decade| (10f64.powi(decade), thousands(10usize.pow(decade as u32)))).collect();
    let below = format!(
        "{} scopes, each to its end: {} distinct states in {}",
        scopes.len(),
        thousands(states),
        seconds_of(seconds)
    );
    let height = 108 + BAR * scopes.len() as u32 + 50;
    let margins = Margins { names: 300, labels: 300 };
    draw((WIDTH, height), "The model: states and time of each scope", &below, unverified, |area| {
        bars(area, &names, &drawn, &margins, |value| (value.log10() - low) / (high - low), &ticks)
    })
    .map(Some)
}

fn seconds_of(seconds: f64) -> String {
    match seconds {
        few if few < 9.95 => format!("{few:.1} s"),
        some if some < 119.5 => format!("{some:.0} s"),
        many => format!("{:.0} min", many / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_short() {
        assert_eq!([0.04, 7.25, 57.4, 780.0].map(seconds_of), ["0.0 s", "7.2 s", "57 s", "13 min"]);
    }
}
