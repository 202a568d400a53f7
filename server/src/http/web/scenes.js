// Brings the jobs of the page up to date that have not ended, one after the other, so that many jobs are no more requests.

/** Milliseconds between two requests. */
const PAUSE = 2000;
/** Milliseconds between two pictures of a scene that is trained: there is no newer one before. */
const PICTURES = 10000;
/** What each stage is called. */
const STAGES = { frames: "choosing frames", sfm: "finding the cameras", train: "training", export: "writing the files" };

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** `1 h 05 min`, `12 min`, `48 s`. */
function duration(seconds) {
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** Shows what the scene looks like now. There may be no picture yet: then what stands there stays. */
function look(card) {
  const now = Date.now();
  if (now - Number(card.dataset.looked ?? 0) < PICTURES) return;
  const picture = new Image(320, 180);
  picture.className = "preview";
  picture.alt = "The scene as far as it is trained";
  picture.onload = () => {
    card.dataset.looked = now;
    card.querySelector(".preview").replaceWith(picture);
  };
  picture.src = `${card.dataset.picture}?at=${now}`;
}

/** Shows what a report says; whether the job has ended. */
function show(card, report) {
  const { stage, stage_fraction, stage_seconds_left, percent_complete } = report.progress;
  const waits = report.status.startsWith("Queued");
  const left = stage_seconds_left ? `, ${duration(stage_seconds_left)} left` : "";
  const doing = !waits && STAGES[stage] ? ` · ${STAGES[stage]}, ${Math.round(100 * stage_fraction)} %${left}` : "";
  card.querySelector("[data-field=status]").textContent = report.status;
  card.querySelector("[data-field=stage]").textContent = doing;
  card.querySelector("progress").value = percent_complete ?? 0;
  if (!waits && stage === "train") look(card);
  return report.progress.finished_at !== null;
}

/** Looks at each job in turn. One that has ended looks different: then the whole page is asked for again. */
async function follow(cards) {
  while (cards.length > 0) {
    for (const card of cards) {
      await pause(PAUSE);
      // Nobody looks.
      while (document.hidden) await pause(PAUSE);
      let answer;
      try {
        answer = await fetch(card.dataset.live, { redirect: "manual" });
      } catch {
        continue; // The server is away for a moment.
      }
      // Signed out, or deleted elsewhere: the page knows more.
      if (answer.type === "opaqueredirect" || answer.status === 404) return location.reload();
      if (answer.ok && show(card, await answer.json())) return location.reload();
    }
  }
}

follow([...document.querySelectorAll("[data-live]")]);
