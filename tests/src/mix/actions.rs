//! The actions of a build, from a seed.
use std::time::Duration;

/// Actions that execute about as long. Figures are those of 2,513 actions of five projects (compilers, a C library and
/// what is built with them), measured on Buildbarn with Buck2.
#[derive(Clone, Copy, Debug)]
pub struct Band {
    /// How it is called.
    pub name: &'static str,
    /// How many.
    pub actions: usize,
    /// Their wall time, in seconds: from, to, and all of them together.
    from_s: f64,
    to_s: f64,
    share_of_wall: f64,
    /// CPU seconds by wall seconds: on average, and what nine of ten stay below.
    cores: f64,
    cores_p90: f64,
    /// The largest process, in MiB.
    memory_mib: u32,
}

/// All of them.
pub const BANDS: [Band; 5] = [
    Band::new("under 5 s", 1633, (0.05, 5.0, 0.02), (0.91, 0.98), 92),
    Band::new("5 to 20 s", 535, (5.0, 20.0, 0.22), (1.29, 2.03), 338),
    Band::new("20 to 60 s", 258, (20.0, 60.0, 0.30), (1.91, 3.31), 236),
    Band::new("60 to 300 s", 79, (60.0, 300.0, 0.37), (5.78, 9.11), 1362),
    Band::new("over 300 s", 8, (300.0, 350.0, 0.09), (5.09, 5.53), 1362),
];

/// All wall time together, in seconds, so that the longest band's actions are as long as they are said to be.
const WALL_S: f64 = 28_900.0;

/// The most cores that were seen.
const CORES_MAX: f64 = 13.0;

/// The ninth decile of the normal distribution.
const Z90: f64 = 1.2816;

impl Band {
    const fn new(
        name: &'static str,
        actions: usize,
        (from_s, to_s, share_of_wall): (f64, f64, f64),
        (cores, cores_p90): (f64, f64),
        memory_mib: u32,
    ) -> Self {
        Self { name, actions, from_s, to_s, share_of_wall, cores, cores_p90, memory_mib }
    }

    /// Wall times from the shortest to the longest, that add up to the band's share.
    fn walls(&self) -> Vec<f64> {
        let n = self.actions as f64;
        let at = |power: f64| {
            let wall = move |i: usize| {
                let x = (i as f64 + 0.5) / n;
                self.from_s + (self.to_s - self.from_s) * x.powf(power)
            };
            (0..self.actions).map(wall).collect::<Vec<f64>>()
        };
        // The larger the power, the more are short.
        let (mut low, mut high) = (0.01, 100.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            let all: f64 = at(middle).iter().sum();
            if all > WALL_S * self.share_of_wall { low = middle } else { high = middle }
        }
        at(f64::midpoint(low, high))
    }

    /// Use of cores, spread so that average and ninth decile are those of the band.
    fn cores(&self, normal: f64) -> f64 {
        let spread = (self.cores_p90 / self.cores).ln() / Z90;
        (self.cores * (spread * normal - spread * spread / 2.0).exp()).clamp(0.1, CORES_MAX)
    }
}

/// One action.
#[derive(Clone, Debug)]
pub struct Action {
    /// What is built, and so the learning key.
    pub target: String,
    /// Which of [`BANDS`].
    pub band: usize,
    /// One of five.
    pub project: usize,
    /// How long it executes with as many cores as it likes.
    pub wall: Duration,
    /// CPU seconds by wall seconds then.
    pub cores: f64,
    /// Its largest process, in MiB.
    pub memory_mib: u32,
}

/// Numbers that look random and are the same each time.
#[derive(Clone, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to 1, neither included (splitmix64).
    pub(super) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 + f64::EPSILON / 2.0
    }

    /// Around 0, as far as 1 mostly (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let (a, b) = (self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

/// A build's actions in the order in which they are asked for.
pub fn actions(seed: u64) -> Vec<Action> {
    let mut draws = Draws::new(seed);
    let mut all = Vec::new();
    for (band, of) in BANDS.iter().enumerate() {
        for (i, wall) in of.walls().into_iter().enumerate() {
            all.push(Action {
                target: format!("//band{band}:target{i}"),
                band,
                project: i % 5,
                wall: Duration::from_secs_f64(wall),
                cores: of.cores(draws.normal()),
                memory_mib: (f64::from(of.memory_mib) * (0.3 + 0.7 * draws.uniform())) as u32,
            });
        }
    }
    // Fisher and Yates: builds don't ask for what is short first.
    for i in (1..all.len()).rev() {
        all.swap(i, (draws.uniform() * (i + 1) as f64) as usize);
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_what_was_measured() {
        let all = actions(1);
        assert_eq!(all.len(), 2513);
        for (band, of) in BANDS.iter().enumerate() {
            let of_band: Vec<&Action> = all.iter().filter(|a| a.band == band).collect();
            assert_eq!(of_band.len(), of.actions);
            let wall: f64 = of_band.iter().map(|a| a.wall.as_secs_f64()).sum();
            assert!((wall / WALL_S - of.share_of_wall).abs() < 0.002, "{}: {wall}", of.name);
            let cores = of_band.iter().map(|a| a.cores).sum::<f64>() / of.actions as f64;
            assert!((cores / of.cores - 1.0).abs() < 0.1, "{}: {cores} cores", of.name);
        }
        let heavy = all.iter().filter(|a| a.cores > 4.5).count();
        assert!((50..100).contains(&heavy), "{heavy} use more than a worker of before requested");
    }
}
