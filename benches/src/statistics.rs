//! What a handful of noisy measurements says: a median and a spread, never a mean.
//!
//! Ratios are formed within a round, in which the subjects ran side by side under the same load of the machine, and
//! only then summarised over the rounds.

/// The middle of a set of values and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle value; between the two middle ones of an even number.
    pub median: f64,
    /// The least and the greatest.
    pub spread: [f64; 2],
}

/// Summarises `values`; `None` when there are none. Values that are not numbers are left out.
pub fn summary(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (least, greatest) = (*sorted.first()?, *sorted.last()?);
    let upper = sorted.len() / 2;
    let lower = (sorted.len() - 1) / 2;
    Some(Summary { median: (sorted[lower] + sorted[upper]) / 2.0, spread: [least, greatest] })
}

/// The ratio `subject / baseline` of each round, summarised. Rounds that lack one of the two are left out.
pub fn ratio(subject: &[Option<f64>], baseline: &[Option<f64>]) -> Option<Summary> {
    let pairs = subject.iter().zip(baseline);
    summary(pairs.filter_map(|(subject, baseline)| Some((*subject)? / (*baseline)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_one_outlier() {
        assert_eq!(summary([3.0, 1.0, 900.0]), Some(Summary { median: 3.0, spread: [1.0, 900.0] }));
        assert_eq!(summary([4.0, 1.0, 2.0, 3.0]), Some(Summary { median: 2.5, spread: [1.0, 4.0] }));
        assert_eq!(summary([7.0]), Some(Summary { median: 7.0, spread: [7.0, 7.0] }));
        assert_eq!(summary([]), None);
        assert_eq!(summary([f64::NAN, 1.0]), Some(Summary { median: 1.0, spread: [1.0, 1.0] }));
    }

    /// The second round is twice as slow for both: their ratio does not see it.
    #[test]
    fn ratios_are_formed_within_a_round() {
        let subject = [Some(2.0), Some(4.0), None, Some(2.0)];
        let baseline = [Some(1.0), Some(2.0), Some(5.0), Some(1.0)];
        assert_eq!(ratio(&subject, &baseline), Some(Summary { median: 2.0, spread: [2.0, 2.0] }));
        assert_eq!(ratio(&[None], &[Some(1.0)]), None);
    }
}
