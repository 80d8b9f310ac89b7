package probe

import (
	"context"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// nvidiaFields are the columns that are asked for, in this order.
const nvidiaFields = "name,temperature.gpu,utilization.gpu,memory.total,memory.used,memory.free"

func nvidia(ctx context.Context, run RunFunc) []*ktmsv1.NodeGPU {
	// With a failing GPU among healthy ones the tool fails and prints the healthy ones all the same.
	out, _ := run(ctx, "nvidia-smi", "--query-gpu="+nvidiaFields, "--format=csv,noheader,nounits")
	return parseNVIDIA(string(out))
}

// parseNVIDIA reads one GPU per line: °C, %, MiB. Lines of another shape are messages. [N/A] and its like are unknown.
func parseNVIDIA(out string) []*ktmsv1.NodeGPU {
	var gpus []*ktmsv1.NodeGPU
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) != strings.Count(nvidiaFields, ",")+1 || fields[0] == "" {
			continue
		}
		gpu := &ktmsv1.NodeGPU{
			Name:               fields[0],
			TemperatureCelsius: celsius(number(fields[1])),
			UtilizationPercent: percent(number(fields[2])),
			MemoryTotalBytes:   bytesOf(number(fields[3]), mebibyte),
			// Not total less used: the driver keeps a part for itself.
			MemoryFreeBytes: bytesOf(number(fields[5]), mebibyte),
		}
		if gpu.MemoryFreeBytes == nil {
			gpu.MemoryFreeBytes = minus(gpu.MemoryTotalBytes, bytesOf(number(fields[4]), mebibyte))
		}
		gpus = append(gpus, gpu)
	}
	return gpus
}
