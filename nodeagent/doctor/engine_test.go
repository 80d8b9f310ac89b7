package doctor

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
)

// TestExamineMachine looks at the engine, its models, the schedule and the GPUs.
func TestExamineMachine(t *testing.T) {
	t.Parallel()
	examine(t, []examination{
		{"all is well", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { o.Model = "a" }, "ok       model a is loaded|no problem found|note     model b:1 is not loaded", 0},
		{"no engine", engine.Ollama, nil, func(t *testing.T, o *Options, _ *gateway) {
			o.EngineURL = "http://127.0.0.1:1"
			o.Engine = openAt(t, engine.Ollama, o.EngineURL)
		}, "does not answer at http://127.0.0.1:1|ollama serve|connection refused", 1},
		{"another engine", engine.Ollama, site{"/v1/models": `{"data":[]}`}, nil, "does not answer|status 404", 1},
		{"model missing", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { o.Model = "c" }, "lacks the model c: ollama pull c", 1},
		{"model not loaded", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { o.Model = "b:1" }, "model b:1 is not loaded, so|ollama run b:1", 1},
		{"model not loaded in a pause", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Model, o.ScheduleFile = "b:1", file(t, "00:00-24:00 0")
		}, "schedule: now 0%, no switch|as the schedule has the node paused", 0},
		{"schedule not valid", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.ScheduleFile = file(t, "00:00-12:00 0\n11:00-13:00 0")
		}, "line 2 overlaps line 1", 1},
		{"schedule missing", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.ScheduleFile = filepath.Join(t.TempDir(), "none")
		}, "no such file", 1},
		{"model not reported", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			o.Model, o.Selection.Only = "a", []string{"b:1"}
		}, "does not report the model a", 1},
		{"named models missing", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			o.Selection = engine.Selection{Only: []string{"c"}, Judges: []string{"d"}}
		}, "lacks the model c that|lacks the model d that|no model to report", 3},
		{"on the CPU", engine.Ollama, ollama(`{"models":[{"name":"a:latest","size":100,"size_vram":0}]}`), nil, "a:latest runs on the CPU|nvidia-smi", 1},
		{"partly on the CPU", engine.Ollama, ollama(`{"models":[{"name":"a:latest","size":100,"size_vram":75}]}`), nil, "note     25% of model a:latest", 0},
		{"Intel build on a Mac", engine.Ollama, ollama(`{"models":[]}`), func(t *testing.T, o *Options, _ *gateway) {
			o.Machine.OS, o.Machine.Run = "darwin", mac(program(t, intel))
		}, "is an Intel build|Rosetta", 1},
		{"Apple Silicon build on a Mac", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Machine.OS, o.Machine.Run = "darwin", mac(program(t, arm))
		}, "no problem found", 0},
		{"build for both on a Mac", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Machine.OS, o.Machine.Run = "darwin", mac(program(t, intel, arm))
		}, "no problem found", 0},
		{"engine that loads", engine.LlamaCPP, site{"/v1/models": `{"data":[{"id":"a"}]}`}, func(t *testing.T, o *Options, _ *gateway) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, `{"error":{"code":503,"message":"Loading model"}}`)
			}))
			t.Cleanup(s.Close)
			o.Engine = openAt(t, engine.LlamaCPP, s.URL)
		}, "but it is not ready: Loading model|wait until", 1},
		{"no metrics", engine.LlamaCPP, site{"/v1/models": `{"data":[{"id":"a"}]}`}, nil, "note     the engine does not tell how busy it is: start llama-server with --metrics", 0},
		{"metrics", engine.VLLM, site{"/v1/models": `{"data":[{"id":"a"}]}`, "/metrics": "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"}, nil, "runs 2 requests, and 1 wait", 0},
		{"one of each", engine.VLLM, site{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"}]}`, "/metrics": "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"}, nil,
			"with 1 model\n|runs 1 request, and 0 wait|no problem found", 0},
		{"vLLM without metrics", engine.VLLM, site{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"}]}`}, nil, "note     the engine does not tell how busy it is: start vLLM without", 0},
		{"Ollama called vLLM", engine.VLLM, site{"/": "Ollama is running", "/v1/models": `{"data":[{"id":"a","owned_by":"library"}]}`}, nil,
			"PROBLEM  the engine at http|is ollama, not vllm: give --engine ollama", 1},
		{"vLLM called llama.cpp", engine.LlamaCPP, site{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"}]}`}, nil, "is vllm, not llamacpp: give --engine vllm", 1},
		{"a nobody called vLLM", engine.VLLM, site{"/v1/models": `{"data":[{"id":"a"}]}`}, nil, "PROBLEM  the engine at http|has no metrics of vLLM", 1},
		{"vLLM called generic", engine.Generic, site{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"}]}`}, nil, "no problem found", 0},
		{"hot GPU", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			o.Machine.GPUs = func(context.Context) []*ktmsv1.NodeGPU {
				return []*ktmsv1.NodeGPU{{Name: "X", TemperatureCelsius: new(90.0), MemoryTotalBytes: new(int64(2 << 30)), MemoryFreeBytes: new(int64(1 << 30))}, {Name: "Y", UtilizationPercent: new(3.0)}}
			}
		}, "ok       GPU X, 90 °C, 1.0 of 2.0 GiB free|X is hot|ok       GPU Y, 3% busy", 0},
	})
}
