//! What is known under one learning key.

use std::time::Duration;

use crate::histogram::{Histogram, TOTAL_MAX};

/// Buckets: 1 ms to 4.6 h.
pub(crate) type Walls = Histogram<97>;
/// Buckets: an eighth of a core to 256 cores.
pub(crate) type Cores = Histogram<45>;
/// Buckets: 1 MiB to 0.9 TiB.
pub(crate) type Memories = Histogram<80>;

const WALL_FIRST_MS: f64 = 1.0;
const CORES_FIRST: f64 = 0.125;
const MEMORY_FIRST_MIB: f64 = 1.0;

/// Size classes that are counted apart. Of more, those used least recently are forgotten.
pub(crate) const CLASSES_MAX: usize = 6;

/// How an attempt ended. What infrastructure fails at is no attempt at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// With exit code 0.
    Succeeded,
    /// By itself, with another exit code.
    Failed,
    /// By SIGKILL, which is how memory that is out ends a process.
    Killed,
    /// By its time limit.
    TimedOut,
}

/// One attempt, as its worker reported it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// How it ended.
    pub ended: Ended,
    /// Size class of the worker.
    pub size_class: u32,
    /// How long the command ran; zero where the worker doesn't say.
    pub wall: Duration,
    /// CPU time by wall time; `None` where the worker doesn't say.
    pub cores: Option<f64>,
    /// The largest resident set of one of its processes, in MiB; `None` where the worker doesn't say.
    pub peak_memory_mib: Option<u32>,
}

/// What happened on one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// The class.
    pub size_class: u32,
    /// Attempts there, since the key is known.
    pub runs: u32,
    /// Of the latest runs of the key, killed there. Fades as they become old.
    pub killed: u8,
    /// Of the latest runs of the key, timed out there. Fades as they become old.
    pub timed_out: u8,
    /// When the last of those two happened, in seconds since the Unix epoch.
    pub last_bad: u32,
    /// When it last ran there, in seconds since the Unix epoch.
    pub last: u32,
}

/// What is known under one learning key. Of counts, those of all runs are kept as they are; everything else is of the
/// latest runs: whenever 255 are remembered, each of them counts half from then on, so what an action was like some hundred
/// runs ago no longer matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub(crate) walls: Walls,
    pub(crate) cores: Cores,
    pub(crate) memories: Memories,
    /// Of all sizes; the unused ones at the end have no runs.
    pub(crate) classes: [ClassCount; CLASSES_MAX],
    /// Attempts that are remembered, faded ones by what they still count.
    pub(crate) remembered: u8,
    /// Of successful runs whose cores are known, faded: CPU time and wall time in seconds.
    pub(crate) cpu_s: f32,
    pub(crate) measured_s: f32,
    /// The most that is remembered, in MiB.
    pub(crate) peak_mib: u32,
    pub(crate) runs: u32,
    pub(crate) failed: u32,
    pub(crate) killed: u32,
    pub(crate) timed_out: u32,
    /// Of all runs since the key is known, in seconds.
    pub(crate) wall_total_s: f64,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Record {
    /// Takes in a run that ended at `now`, in seconds since the Unix epoch.
    pub fn note(&mut self, run: &Run, now: u32) {
        if u32::from(self.remembered) >= TOTAL_MAX {
            self.fade();
        }
        self.remembered += 1;
        if self.runs == 0 {
            self.first = now;
        }
        self.last = self.last.max(now);
        self.runs = self.runs.saturating_add(1);
        self.wall_total_s += run.wall.as_secs_f64();
        let class = self.class(run.size_class);
        class.runs = class.runs.saturating_add(1);
        class.last = now;
        match run.ended {
            Ended::Succeeded => self.succeeded(run),
            Ended::Failed => self.failed = self.failed.saturating_add(1),
            Ended::Killed => {
                (class.killed, class.last_bad) = (class.killed.saturating_add(1), now);
                self.killed = self.killed.saturating_add(1);
            }
            Ended::TimedOut => {
                (class.timed_out, class.last_bad) = (class.timed_out.saturating_add(1), now);
                self.timed_out = self.timed_out.saturating_add(1);
            }
        }
    }

    /// Takes times that lie after `now` for now: a clock that was far ahead once would have the record stay for ever, and a
    /// kill never forgotten.
    pub fn not_after(&mut self, now: u32) {
        let times = self.classes.iter_mut().flat_map(|class| [&mut class.last, &mut class.last_bad]);
        times.chain([&mut self.first, &mut self.last]).for_each(|time| *time = (*time).min(now));
    }

    fn succeeded(&mut self, run: &Run) {
        if !run.wall.is_zero() {
            self.walls.add(run.wall.as_secs_f64() * 1000.0, WALL_FIRST_MS);
        }
        if let Some(cores) = run.cores.filter(|cores| cores.is_finite()) {
            self.cores.add(cores, CORES_FIRST);
            let wall = run.wall.as_secs_f64();
            self.cpu_s += (cores * wall) as f32;
            self.measured_s += wall as f32;
        }
        if let Some(mib) = run.peak_memory_mib {
            self.memories.add(f64::from(mib), MEMORY_FIRST_MIB);
            self.peak_mib = self.peak_mib.max(mib);
        }
    }

    fn fade(&mut self) {
        self.walls.fade();
        self.cores.fade();
        self.memories.fade();
        self.remembered /= 2;
        self.cpu_s /= 2.0;
        self.measured_s /= 2.0;
        for class in &mut self.classes {
            class.killed /= 2;
            class.timed_out /= 2;
        }
        // Only the bucket of the most is known once the run itself is forgotten.
        let most = self.memories.quantile(1.0, MEMORY_FIRST_MIB).unwrap_or(0.0);
        let edge = (most * 0.125_f64.exp2()).ceil() as u32;
        self.peak_mib = self.peak_mib.min(edge);
    }

    /// The counts of a size class; where all places are taken, in place of the one used least recently.
    fn class(&mut self, size_class: u32) -> &mut ClassCount {
        let known = self.classes.iter().position(|c| c.runs > 0 && c.size_class == size_class);
        let place = known.unwrap_or_else(|| {
            let oldest = self.classes.iter().enumerate().min_by_key(|(_, c)| (c.runs > 0, c.last));
            let place = oldest.map_or(0, |(place, _)| place);
            self.classes[place] = ClassCount { size_class, ..ClassCount::default() };
            place
        });
        &mut self.classes[place]
    }

    // === What it says ===

    /// Attempts so far, and of those how many did not succeed.
    pub fn attempts(&self) -> (u32, u32) {
        let failures = self.failed.saturating_add(self.killed).saturating_add(self.timed_out);
        (self.runs, failures)
    }

    /// Failures by cause: by themselves, killed, timed out.
    pub fn failures(&self) -> (u32, u32, u32) {
        (self.failed, self.killed, self.timed_out)
    }

    /// Successful runs that are remembered and whose time is known.
    pub fn timed(&self) -> u32 {
        self.walls.total()
    }

    /// Successful runs that are remembered and whose cores are known.
    pub fn measured(&self) -> u32 {
        self.cores.total()
    }

    /// So long a share `q` of successful runs took at most.
    pub fn wall(&self, q: f64) -> Option<Duration> {
        self.walls.quantile(q, WALL_FIRST_MS).map(|ms| Duration::from_secs_f64(ms / 1000.0))
    }

    /// So many cores a share `q` of successful runs used at most.
    pub fn cores(&self, q: f64) -> Option<f64> {
        self.cores.quantile(q, CORES_FIRST)
    }

    /// CPU time of successful runs by their wall time, so that long runs weigh more.
    pub fn mean_cores(&self) -> Option<f64> {
        (self.measured_s > 0.0).then(|| f64::from(self.cpu_s / self.measured_s))
    }

    /// The peak memory that a share `q` of successful runs had at most, in MiB.
    pub fn memory_mib(&self, q: f64) -> Option<u32> {
        // No more than the most there was, which the middle of its bucket may exceed.
        self.memories.quantile(q, MEMORY_FIRST_MIB).map(|mib| (mib.round() as u32).min(self.peak_mib))
    }

    /// The most memory that a successful run had, in MiB; 0: nothing is known.
    pub fn peak_memory_mib(&self) -> u32 {
        self.peak_mib
    }

    /// What happened on each size class, smallest first.
    pub fn classes(&self) -> Vec<ClassCount> {
        let mut classes: Vec<_> = self.classes.iter().filter(|c| c.runs > 0).copied().collect();
        classes.sort_unstable_by_key(|c| c.size_class);
        classes
    }

    /// Running time of all attempts since the key is known.
    pub fn wall_total(&self) -> Duration {
        Duration::try_from_secs_f64(self.wall_total_s).unwrap_or_default()
    }

    /// When the first and the last run ended, in seconds since the Unix epoch.
    pub fn seen(&self) -> (u32, u32) {
        (self.first, self.last)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn ran(seconds: f64, cores: f64, mib: u32) -> Run {
        Run {
            ended: Ended::Succeeded,
            size_class: 1,
            wall: Duration::from_secs_f64(seconds),
            cores: Some(cores),
            peak_memory_mib: Some(mib),
        }
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<Record>() <= 400, "{} bytes", size_of::<Record>());
    }

    #[test]
    fn runs_add_up() {
        let mut record = Record::default();
        (0..20).for_each(|i| record.note(&ran(8.192, 2.0, 512), 100 + i));
        record.note(&Run { ended: Ended::Failed, ..ran(1.0, 1.0, 9) }, 130);
        record.note(&Run { ended: Ended::Killed, size_class: 0, ..ran(2.0, 1.0, 9) }, 140);
        record.note(&Run { ended: Ended::TimedOut, size_class: 0, ..ran(3.0, 1.0, 9) }, 150);
        assert_eq!((record.attempts(), record.failures()), ((23, 3), (1, 1, 1)));
        assert_eq!((record.timed(), record.measured()), (20, 20));
        assert_eq!(record.wall(0.5), Some(Duration::from_millis(8192)));
        assert_eq!((record.cores(0.95), record.mean_cores()), (Some(2.0), Some(2.0)));
        assert_eq!((record.memory_mib(0.95), record.peak_memory_mib()), (Some(512), 512));
        assert_eq!(record.seen(), (100, 150));
        assert!((record.wall_total().as_secs_f64() - 169.84).abs() < 0.001);
        let [small, other] = record.classes()[..] else { panic!("{:?}", record.classes()) };
        assert_eq!((small.size_class, small.runs, small.killed, small.timed_out), (0, 2, 1, 1));
        assert_eq!((small.last_bad, other.size_class, other.runs, other.killed), (150, 1, 21, 0));
    }

    #[test]
    fn a_changed_action_is_learned_anew() {
        let mut record = Record::default();
        (0..10_000).for_each(|_| record.note(&ran(100.0, 8.0, 4000), 1));
        record.note(&Run { ended: Ended::Killed, ..ran(1.0, 1.0, 9) }, 1);
        (0..600).for_each(|_| record.note(&ran(1.0, 1.0, 100), 2));
        let near = |found: f64, wanted: f64| (found / wanted).log2().abs() <= 0.126;
        assert!(near(record.wall(0.5).unwrap().as_secs_f64(), 1.0), "{:?}", record.wall(0.5));
        assert!(near(record.cores(0.95).unwrap(), 1.0), "{:?}", record.cores(0.95));
        (0..3000).for_each(|_| record.note(&ran(1.0, 1.0, 100), 3));
        assert!(near(record.mean_cores().unwrap(), 1.0), "{:?}", record.mean_cores());
        assert!(record.peak_memory_mib() <= 118, "{}", record.peak_memory_mib());
        assert_eq!(record.classes()[0].killed, 0, "one kill so many runs ago no longer counts");
        assert_eq!(record.attempts(), (13_601, 1), "but it is not forgotten");
    }

    #[test]
    fn a_worker_that_says_nothing_teaches_nothing_but_that_it_ran() {
        let mut record = Record::default();
        let silent = Run { wall: Duration::ZERO, cores: None, peak_memory_mib: None, ..ran(1.0, 1.0, 1) };
        record.note(&silent, 5);
        assert_eq!((record.attempts(), record.timed(), record.measured()), ((1, 0), 0, 0));
        assert_eq!((record.wall(0.5), record.cores(0.5), record.memory_mib(0.5)), (None, None, None));
        assert_eq!(record.mean_cores(), None);
    }

    #[test]
    fn of_many_classes_the_latest_are_known() {
        let mut record = Record::default();
        for class in 0..20 {
            record.note(&Run { size_class: class, ..ran(1.0, 1.0, 1) }, 100 + class);
        }
        record.note(&Run { size_class: 15, ..ran(1.0, 1.0, 1) }, 200);
        let classes: Vec<_> = record.classes().iter().map(|c| (c.size_class, c.runs)).collect();
        assert_eq!(classes, [(14, 1), (15, 2), (16, 1), (17, 1), (18, 1), (19, 1)]);
    }
}
