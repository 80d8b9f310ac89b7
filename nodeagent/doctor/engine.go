package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ai-process/ktms/nodeagent/engine"
)

// startHints say how each engine is started.
var startHints = map[string]string{
	engine.Ollama:    "start it (ollama serve, or the Ollama app)",
	engine.VLLM:      "start it (vllm serve MODEL); its usual address is --engine-url http://127.0.0.1:8000",
	engine.TGI:       "start it; give the address of its HTTP port with --engine-url",
	engine.LlamaCPP:  "start llama-server; give its port with --engine-url, like http://127.0.0.1:8080",
	engine.SGLang:    "start it; its usual address is --engine-url http://127.0.0.1:30000",
	engine.Decisions: "start it; give its address with --engine-url",
	engine.Generic:   "start it; give its address with --engine-url",
}

// loadHints say what makes an engine tell its load.
var loadHints = map[string]string{
	engine.VLLM:     "start vLLM without --disable-log-stats",
	engine.TGI:      "TGI has /metrics always, so something else may be at this address",
	engine.LlamaCPP: "start llama-server with --metrics",
	engine.SGLang:   "start SGLang with --enable-metrics",
}

// checkEngine returns the models that the engine has, and whether it answers.
func checkEngine(ctx context.Context, o Options, r *report, level int) (models []engine.Model, answers bool) {
	models, err := o.Engine.Models(ctx)
	if _, found := errors.AsType[*engine.NotReadyError](err); found {
		r.problem("the engine (%s) answers at %s, but %v\nwait until it has loaded its model, or look into its log", o.Kind, o.EngineURL, err)
		return nil, false
	}
	if err != nil {
		r.problem("the engine (%s) does not answer at %s: %v\n%s", o.Kind, o.EngineURL, err, startHints[o.Kind])
		return nil, false
	}
	r.ok("the engine (%s) answers at %s with %s", o.Kind, o.EngineURL, count(len(models), "model"))
	told := checkKind(ctx, o, r)
	reported, missing := o.Selection.Apply(models)
	for _, name := range missing {
		r.problem("the engine lacks the model %s that --only-model or --judge-model names%s", name, pullHint(o.Kind, name))
	}
	if len(reported) == 0 {
		r.problem("the node has no model to report")
	}
	checkModel(o, r, models, level)
	for _, m := range models {
		if !m.Warm && !m.Is(o.Model) {
			r.note("model %s is not loaded", m.ID)
		}
	}
	checkLoad(ctx, o, r, told)
	checkResidents(ctx, o, r)
	return models, true
}

func pullHint(kind, model string) string {
	if kind == engine.Ollama {
		return ": ollama pull " + model
	}
	return ""
}

// checkModel looks at the one model that the operator asks about.
func checkModel(o Options, r *report, models []engine.Model, level int) {
	if o.Model == "" {
		return
	}
	i := slices.IndexFunc(models, func(m engine.Model) bool { return m.Is(o.Model) })
	if i < 0 {
		r.problem("the engine lacks the model %s%s", o.Model, pullHint(o.Kind, o.Model))
		return
	}
	reported, _ := o.Selection.Apply(models[i : i+1])
	switch {
	case len(reported) == 0:
		r.problem("the agent does not report the model %s, since --only-model names others", o.Model)
	case models[i].Warm:
		r.ok("model %s is loaded", o.Model)
	case level == 0:
		r.ok("model %s is not loaded, as the schedule has the node paused", o.Model)
	case o.Kind == engine.Ollama:
		r.problem("model %s is not loaded, so the first request waits for it: load it with ollama run %s \"\"", o.Model, o.Model)
	default:
		r.problem("model %s is not loaded, so the first request waits for it", o.Model)
	}
}

// checkKind compares what the engine calls itself with what --engine says: another kind may list models all the same, and
// then be asked for its load and its readiness in words that it does not have. It returns what the engine calls itself.
func checkKind(ctx context.Context, o Options, r *report) string {
	named, can := o.Engine.(engine.Named)
	if !can || o.Kind == engine.Generic || o.Kind == engine.Decisions {
		return ""
	}
	told := named.CallsItself(ctx)
	if told != "" && told != o.Kind {
		r.problem("the engine at %s is %s, not %s: give --engine %s", o.EngineURL, told, o.Kind, told)
	}
	return told
}

// checkLoad asks how busy the engine is, which calls itself told.
func checkLoad(ctx context.Context, o Options, r *report, told string) {
	if told != "" && told != o.Kind {
		return
	}
	hint, tells := loadHints[o.Kind]
	if !tells {
		return
	}
	load, err := o.Engine.Load(ctx)
	switch {
	case err != nil:
		r.note("the engine does not tell how busy it is: %v", err)
	case load.Active == nil && o.Kind == engine.VLLM && told == "":
		r.problem("the engine at %s has no metrics of vLLM and does not call itself so: give its kind with --engine, or generic", o.EngineURL)
	case load.Active == nil || load.Queued == nil:
		r.note("the engine does not tell how busy it is: %s", hint)
	default:
		r.ok("the engine runs %s, and %d wait", count(*load.Active, "request"), *load.Queued)
	}
}

// checkResidents looks for models that the CPU computes.
func checkResidents(ctx context.Context, o Options, r *report) {
	if o.Kind == engine.Ollama && o.Machine.OS == "darwin" {
		if path := intelOllama(ctx, o.Machine); path != "" {
			r.problem("%s is an Intel build, which runs through Rosetta on this Mac and never uses the GPU: install the Apple Silicon build", path)
		}
	}
	resident, can := o.Engine.(engine.Resident)
	if !can {
		return
	}
	loaded, err := resident.Residents(ctx)
	if err != nil {
		r.note("the engine does not tell where its models lie: %v", err)
		return
	}
	for _, m := range loaded {
		switch {
		case m.Bytes <= 0:
		case m.GPUBytes <= 0:
			r.problem("model %s runs on the CPU, which is very slow: %s", m.Model, cpuHint(o.Machine.OS))
		case m.GPUBytes < m.Bytes:
			r.note("%d%% of model %s lie outside the GPU's memory, which slows it down: use a smaller model or context",
				100-100*m.GPUBytes/m.Bytes, strings.TrimSpace(m.Model))
		}
	}
}

func cpuHint(system string) string {
	if system == "darwin" {
		return "use an Ollama for Apple Silicon, not an Intel build under Rosetta"
	}
	return "check that nvidia-smi or rocm-smi sees the GPU, then restart Ollama"
}
