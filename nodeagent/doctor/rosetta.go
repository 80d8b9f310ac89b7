package doctor

import (
	"context"
	"debug/macho"
	"path/filepath"
	"strings"
)

// intelOllama returns the path of a running Ollama that has no code for Apple Silicon, on a Mac that is one.
func intelOllama(ctx context.Context, m Machine) string {
	// The name is unknown on an Intel Mac. GOARCH would not do: the agent may run through Rosetta itself.
	if arm, err := m.Run(ctx, "sysctl", "-n", "hw.optional.arm64"); err != nil || strings.TrimSpace(string(arm)) != "1" {
		return ""
	}
	out, err := m.Run(ctx, "ps", "-axo", "comm=")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		path := strings.TrimSpace(line)
		if strings.EqualFold(filepath.Base(path), "ollama") && filepath.IsAbs(path) && intelOnly(path) {
			return path
		}
	}
	return ""
}

// intelOnly reads the head of a program.
func intelOnly(path string) bool {
	if fat, err := macho.OpenFat(path); err == nil {
		defer fat.Close()
		for _, arch := range fat.Arches {
			if arch.Cpu == macho.CpuArm64 {
				return false
			}
		}
		return len(fat.Arches) > 0
	}
	file, err := macho.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return file.Cpu == macho.CpuAmd64
}
