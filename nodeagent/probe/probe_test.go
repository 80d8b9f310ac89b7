package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// text writes a reading as "name 41C 87% 35/100M"; ? is unknown.
func text(gpus []*ktmsv1.NodeGPU) string {
	figure := func(p *float64) string {
		if p == nil {
			return "?"
		}
		return fmt.Sprint(*p)
	}
	size := func(p *int64) string {
		if p == nil {
			return "?"
		}
		return fmt.Sprint(*p / mebibyte)
	}
	var lines []string
	for _, g := range gpus {
		lines = append(lines, fmt.Sprintf("%s %sC %s%% %s/%sM", g.Name, figure(g.TemperatureCelsius), figure(g.UtilizationPercent),
			size(g.MemoryFreeBytes), size(g.MemoryTotalBytes)))
	}
	return strings.Join(lines, "\n")
}

// tools answer by the name of the tool; the others are missing. A name after a slash is a file of testdata.
func tools(t *testing.T, answers map[string]string) RunFunc {
	return func(_ context.Context, name string, args ...string) ([]byte, error) {
		for call, answer := range answers {
			if strings.HasPrefix(strings.Join(append([]string{name}, args...), " "), call) {
				if file, found := strings.CutPrefix(answer, "/"); found {
					out, err := os.ReadFile(filepath.Join("testdata", file))
					if err != nil {
						t.Error(err)
					}
					return out, err
				}
				return []byte(answer), nil
			}
		}
		return nil, exec.ErrNotFound
	}
}

func TestGPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, os string
		tools    map[string]string
		want     string
	}{
		{"none", "linux", nil, ""},
		{"nvidia", "linux", map[string]string{"nvidia-smi": "NVIDIA H200, 41, 87, 143771, 81234, 62000\nNVIDIA H200, 88, 100, 143771, 0, 143771\n"},
			"NVIDIA H200 41C 87% 62000/143771M\nNVIDIA H200 88C 100% 143771/143771M"},
		{"nvidia with carriage returns", "windows", map[string]string{"nvidia-smi": "RTX 4090, 41, 0, 24564, 1, 24563\r\n"}, "RTX 4090 41C 0% 24563/24564M"},
		{"nvidia that does not know", "linux", map[string]string{"nvidia-smi": "NVIDIA GB10, 50, [N/A], [N/A], [Not Supported], [Unknown Error]\n"}, "NVIDIA GB10 50C ?% ?/?M"},
		{"nvidia, free unknown", "linux", map[string]string{"nvidia-smi": "X, 50, 1, 100, 40, [N/A]"}, "X 50C 1% 60/100M"},
		{"nvidia, impossible figures", "linux", map[string]string{"nvidia-smi": "X, 5000, 101, -1, NaN, 1e99"}, "X ?C ?% ?/?M"},
		{"nvidia without a driver", "linux", map[string]string{"nvidia-smi": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."}, ""},
		{"nvidia, one of two lost", "linux", map[string]string{"nvidia-smi": "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\nX, 50, 1, 100, 40, 60"}, "X 50C 1% 60/100M"},
		{"rocm-smi", "linux", map[string]string{"rocm-smi": "/rocm-smi-2024.json"}, "Radeon RX 7900 XTX 45C 3% 23841/24560M\ncard10 61C 7% ?/?M"},
		{"amd-smi before rocm-smi", "linux", map[string]string{"amd-smi": "/amd-smi-new.json", "rocm-smi": "/rocm-smi-2024.json"}, "AMD GPU 0 71C 97% 100000/196592M"},
		{"amd-smi, old", "linux", map[string]string{"amd-smi": "/amd-smi-old.json"}, "AMD GPU 0 40C ?% 60/100M\nAMD GPU 1 ?C ?% ?/?M"},
		{"amd-smi of another shape", "linux", map[string]string{"amd-smi": `{"gpus":[]}`, "rocm-smi": "/rocm-smi-2024.json"}, "Radeon RX 7900 XTX 45C 3% 23841/24560M\ncard10 61C 7% ?/?M"},
		{"nvidia with MIG", "linux", map[string]string{"nvidia-smi": "NVIDIA A100-SXM4-80GB, 33, [N/A], 81920, 40500, 40400\nNVIDIA A100-SXM4-80GB, 35, 12, 81920, 1, 81000\n"},
			"NVIDIA A100-SXM4-80GB 33C ?% 40400/81920M\nNVIDIA A100-SXM4-80GB 35C 12% 81000/81920M"},
		{"nvidia, other spellings of unknown", "linux", map[string]string{"nvidia-smi": "X, N/A, [Not Found], [Insufficient Permissions], [Requires Root], \n"}, "X ?C ?% ?/?M"},
		{"nvidia, warnings around", "linux", map[string]string{"nvidia-smi": "WARNING: infoROM is corrupted at gpu 0000:01:00.0\nX, 50, 1, 100, 40, 60\nWARNING: infoROM is corrupted at gpu 0000:01:00.0\n"}, "X 50C 1% 60/100M"},
		{"rocm-smi with figures that are no text", "linux", map[string]string{"rocm-smi": `{"card0":{"Temperature (Sensor junction) (C)":48.5,"GPU use (%)":3,"VRAM Total Memory (B)":1048576000,"VRAM Total Used Memory (B)":524288000}}`},
			"card0 48.5C 3% 500/1000M"},
		{"rocm-smi, warnings around", "linux", map[string]string{"rocm-smi": "WARNING: AMD GPU device(s) is/are in a low-power state.\n[1] of 2\n{\"card0\":{\"GPU use (%)\":\"3\"}}\nWARNING: done\n"}, "card0 ?C 3% ?/?M"},
		{"rocm-smi, unknown figures", "linux", map[string]string{"rocm-smi": `{"card0":{"Temperature (Sensor edge) (C)":"N/A","Temperature (Sensor junction) (C)":"51.0","GPU use (%)":"N/A","VRAM Total Memory (B)":null},"system":{"Driver version":"6.8"}}`},
			"card0 51C ?% ?/?M"},
		{"amd-smi, warnings around", "linux", map[string]string{"amd-smi": "[WARN] no permission\n[{\"gpu\":0,\"usage\":{\"gfx_activity\":\"N/A\"},\"temperature\":{\"edge\":{\"value\":\"N/A\",\"unit\":\"C\"},\"hotspot\":{\"value\":61,\"unit\":\"C\"}}}]\nbye"}, "AMD GPU 0 61C ?% ?/?M"},
		{"garbled", "linux", map[string]string{"amd-smi": "{\"gpu", "rocm-smi": "Traceback (most recent call last):\n  [card0"}, ""},
		{"both makers", "linux", map[string]string{"nvidia-smi": "X, 50, 1, 100, 40, 60", "amd-smi": "/amd-smi-new.json"}, "X 50C 1% 60/100M\nAMD GPU 0 71C 97% 100000/196592M"},
		{"apple", "darwin", map[string]string{"ioreg": "/ioreg-m3.txt", "sysctl -n hw.memsize": "38654705664\n", "sysctl -n iogpu.wired_limit_mb": "0\n", "vm_stat": "/vm_stat.txt"},
			"Apple M3 Max ?C 91% 9421/36864M"},
		{"apple with a limit", "darwin", map[string]string{"ioreg": "/ioreg-m3.txt", "sysctl -n hw.memsize": "38654705664\n", "sysctl -n iogpu.wired_limit_mb": "24576\n", "vm_stat": "/vm_stat.txt"},
			"Apple M3 Max ?C 91% 7168/24576M"},
		{"apple, only the registry", "darwin", map[string]string{"ioreg": "/ioreg-m3.txt"}, "Apple M3 Max ?C 91% ?/?M"},
		{"apple without a GPU", "darwin", map[string]string{"ioreg": ""}, ""},
		{"apple in a bare machine", "darwin", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := text(Prober{Run: tools(t, c.tools), OS: c.os}.GPUs(t.Context())); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestHangingTool ends a tool that neither prints nor ends, together with the time of its caller.
func TestHangingTool(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := RunTool(ctx, "sleep", "600"); err == nil {
		t.Error("a killed tool succeeded")
	}
}

// TestChattyTool ends a tool that prints without end.
func TestChattyTool(t *testing.T) {
	t.Parallel()
	out, err := RunTool(t.Context(), "yes")
	if err == nil || len(out) > maxOutput {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// TestSampler never waits for a tool, and forgets what is old.
func TestSampler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads int
		hang := make(chan struct{})
		s := NewSampler(func(context.Context) []*ktmsv1.NodeGPU {
			reads++
			if reads == 2 {
				<-hang
			}
			return []*ktmsv1.NodeGPU{{Name: fmt.Sprint(reads)}}
		})
		want := func(name string) {
			t.Helper()
			got := s.Latest(t.Context())
			synctest.Wait()
			if (len(got) == 0) != (name == "") || (len(got) == 1 && got[0].Name != name) {
				t.Errorf("got %v, want %q", got, name)
			}
		}
		want("1") // nothing is known yet, so the first is waited for
		time.Sleep(5 * time.Second)
		want("1") // and the second hangs
		time.Sleep(5 * time.Second)
		want("1")
		time.Sleep(maxAge)
		want("")
		if reads != 2 {
			t.Errorf("%d readings began, want 2", reads)
		}
		close(hang)
		synctest.Wait()
		want("2")
	})
}

// TestRareReadings are fresh though the gateway asks for few heartbeats.
func TestRareReadings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := NewSampler(func(context.Context) []*ktmsv1.NodeGPU {
			time.Sleep(time.Second)
			reads++
			return []*ktmsv1.NodeGPU{{Name: fmt.Sprint(reads)}}
		})
		for i := range 3 {
			if got := s.Latest(t.Context()); len(got) != 1 || got[0].Name != fmt.Sprint(i+1) {
				t.Errorf("heartbeat %d: %v", i, got)
			}
			time.Sleep(4 * maxAge)
		}
	})
}

// TestSlowReading is not waited for longer than a heartbeat can bear.
func TestSlowReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSampler(func(context.Context) []*ktmsv1.NodeGPU {
			time.Sleep(time.Minute)
			return nil
		})
		for range 5 {
			began := time.Now()
			if got := s.Latest(t.Context()); got != nil || time.Since(began) > freshWait {
				t.Errorf("%v after %s", got, time.Since(began))
			}
			time.Sleep(5 * time.Second)
		}
		time.Sleep(time.Minute)
	})
}

// TestToolWithAChild ends a wrapper whose child keeps its output open.
func TestToolWithAChild(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho 'X, 50, 1, 100, 40, 60'\nsleep 61 &\nwait\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	out, err := RunTool(ctx, path)
	if took := time.Since(began); err == nil || took > time.Minute {
		t.Errorf("%q, %v after %s", out, err, took)
	}
}
