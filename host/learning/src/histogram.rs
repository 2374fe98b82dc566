//! Counts by logarithmic buckets: four to an octave, so what is read from them is off by a tenth at most.

/// Buckets to a doubling.
const PER_OCTAVE: f64 = 4.0;

/// How often values of about the same size were seen lately. Bucket `i` has those around `first * 2^(i/4)`; what is below
/// the first or above the last bucket is counted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Histogram<const N: usize> {
    counts: [u8; N],
}

/// The sum of counts never exceeds this: their owner fades them before.
pub(crate) const TOTAL_MAX: u32 = u8::MAX as u32;

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { counts: [0; N] }
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts a value; `first` is the middle of the first bucket.
    pub(crate) fn add(&mut self, value: f64, first: f64) {
        let place = (value / first).log2() * PER_OCTAVE;
        // Negative infinity and NaN become 0, large numbers the largest.
        let count = &mut self.counts[(place.round().max(0.0) as usize).min(N - 1)];
        *count = count.saturating_add(1);
    }

    /// Values that are remembered.
    pub(crate) fn total(&self) -> u32 {
        self.counts.iter().map(|c| u32::from(*c)).sum()
    }

    /// The middle of the bucket that holds the value below or at which a share `q` of all are; `None`: there is none.
    ///
    /// The middle is within 2^(1/8), some 9%, of every value in its bucket; powers of two times `first` are met exactly.
    pub(crate) fn quantile(&self, q: f64, first: f64) -> Option<f64> {
        let total = self.total();
        let wanted = (q * f64::from(total)).ceil().max(1.0) as u32;
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += u32::from(*count);
            seen >= wanted
        })?;
        Some(first * (index as f64 / PER_OCTAVE).exp2())
    }

    /// Halves what is remembered, so that old values weigh less and less. What halves leave over is carried into the next
    /// bucket: rare large values would else be the first to be forgotten.
    pub(crate) fn fade(&mut self) {
        let mut carried = 0;
        for count in &mut self.counts {
            let twice = *count as u16 + carried;
            *count = (twice / 2) as u8;
            carried = twice % 2;
        }
    }

    /// Buckets that hold anything, with their counts.
    pub(crate) fn buckets(&self) -> Vec<(u8, u8)> {
        let held = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        held.filter_map(|(index, count)| Some((u8::try_from(index).ok()?, *count))).collect()
    }

    /// The reverse. A bucket beyond the last is taken for the last; what is more than may be remembered fades at once.
    pub(crate) fn of(buckets: &[(u8, u8)]) -> Self {
        let mut histogram = Self::default();
        for (index, count) in buckets {
            let held = &mut histogram.counts[usize::from(*index).min(N - 1)];
            *held = held.saturating_add(*count);
        }
        while histogram.total() > TOTAL_MAX {
            histogram.fade();
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repeatable stream of numbers from 0 to 1 (a linear congruential generator).
    fn numbers(mut seed: u64) -> impl Iterator<Item = f64> {
        std::iter::from_fn(move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some((seed >> 33) as f64 / f64::from(u32::MAX >> 1))
        })
    }

    #[test]
    fn quantiles_are_off_by_a_tenth_at_most() {
        for seed in 0..50 {
            let mut values: Vec<f64> = numbers(seed).take(200).map(|x| 3.0 * (x * 9.0).exp2()).collect();
            let mut histogram = Histogram::<97>::default();
            values.iter().for_each(|v| histogram.add(*v, 1.0));
            values.sort_by(f64::total_cmp);
            for q in [0.05, 0.5, 0.95, 1.0] {
                let exact = values[((q * 200.0_f64).ceil() as usize).max(1) - 1];
                let found = histogram.quantile(q, 1.0).unwrap();
                assert!((found / exact).log2().abs() <= 0.1251, "seed {seed}: {q} is {exact}, not {found}");
            }
        }
    }

    #[test]
    fn powers_of_two_are_met_and_ends_hold() {
        let mut histogram = Histogram::<8>::default();
        assert_eq!(histogram.quantile(0.5, 1.0), None);
        for (value, read) in
            [(2.0, 2.0), (0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1e9, (7.0_f64 / 4.0).exp2())]
        {
            histogram = Histogram::default();
            histogram.add(value, 1.0);
            assert_eq!(histogram.quantile(0.5, 1.0), Some(read), "{value}");
        }
    }

    #[test]
    fn fading_halves_all_and_keeps_rare_values_in_proportion() {
        let mut histogram = Histogram::<60>::default();
        (0..100).for_each(|_| histogram.add(1.0, 1.0));
        // Twenty rare ones, each in a bucket of its own.
        (20..40).for_each(|i| histogram.add((f64::from(i) / 4.0).exp2(), 1.0));
        histogram.fade();
        assert_eq!(histogram.total(), 60);
        assert_eq!(histogram.counts[20..40].iter().map(|c| u32::from(*c)).sum::<u32>(), 10);
        (0..7).for_each(|_| histogram.fade());
        assert_eq!(histogram.total(), 0);
    }

    #[test]
    fn buckets_are_all_there_is() {
        let mut histogram = Histogram::<97>::default();
        numbers(7).take(250).for_each(|x| histogram.add(x * 5000.0, 1.0));
        assert_eq!(Histogram::of(&histogram.buckets()), histogram);
        let too_much = Histogram::<4>::of(&[(0, 255), (1, 255), (200, 255)]);
        assert!(too_much.total() <= TOTAL_MAX && too_much.counts[3] > 0, "{too_much:?}");
    }
}
