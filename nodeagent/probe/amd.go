package probe

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// amd asks the newer tool, and the older one where that is missing or of a shape that we do not know.
func amd(ctx context.Context, run RunFunc) []*ktmsv1.NodeGPU {
	if out, err := run(ctx, "amd-smi", "metric", "--usage", "--temperature", "--mem-usage", "--json"); err == nil {
		if gpus := firstGPUs(out, parseAMDSMI); len(gpus) > 0 {
			return gpus
		}
	}
	out, _ := run(ctx, "rocm-smi", "--showproductname", "--showtemp", "--showuse", "--showmeminfo", "vram", "--json")
	return firstGPUs(out, parseROCmSMI)
}

// rocmSensors stand in the order of preference: the edge is what NVIDIA's figure is, too. The junction is hotter by
// design, so that it counts only where there is no edge.
var rocmSensors = []string{"edge", "junction", "hotspot", "memory"}

// parseROCmSMI reads {"card0": {"label": "figure"}}. Labels differ between cards.
func parseROCmSMI(out []byte) []*ktmsv1.NodeGPU {
	var cards map[string]map[string]json.RawMessage
	if json.Unmarshal(out, &cards) != nil {
		return nil
	}
	var gpus []*ktmsv1.NodeGPU
	for _, name := range slices.SortedFunc(maps.Keys(cards), byNumber) {
		if !strings.HasPrefix(name, "card") {
			continue // "system"
		}
		card := map[string]string{}
		for label, value := range cards[name] {
			var text string
			if json.Unmarshal(value, &text) != nil {
				text = string(value) // most figures are texts, and some are figures
			}
			card[label] = text
		}
		gpu := &ktmsv1.NodeGPU{Name: name, UtilizationPercent: percent(number(card["GPU use (%)"]))}
		for _, label := range []string{"Card Series", "Card series", "Card model"} {
			if text := card[label]; text != "" && text != "N/A" {
				gpu.Name = text
				break
			}
		}
		for _, sensor := range rocmSensors {
			if gpu.TemperatureCelsius = celsius(number(card["Temperature (Sensor "+sensor+") (C)"])); gpu.TemperatureCelsius != nil {
				break
			}
		}
		gpu.MemoryTotalBytes = bytesOf(number(card["VRAM Total Memory (B)"]), 1)
		gpu.MemoryFreeBytes = minus(gpu.MemoryTotalBytes, bytesOf(number(card["VRAM Total Used Memory (B)"]), 1))
		gpus = append(gpus, gpu)
	}
	return gpus
}

// byNumber puts card2 before card10.
func byNumber(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// measured is a figure with its unit, or only a figure, or "N/A".
type measured struct {
	value *float64
	unit  string
}

func (m *measured) UnmarshalJSON(data []byte) error {
	var pair struct {
		Value json.RawMessage `json:"value"`
		Unit  string          `json:"unit"`
	}
	if json.Unmarshal(data, &pair) == nil {
		m.value, m.unit = number(strings.Trim(string(pair.Value), `"`)), pair.Unit
		return nil
	}
	m.value = number(strings.Trim(string(data), `"`))
	return nil
}

// bytes are of a unit that the tool names: its MB are MiB.
func (m *measured) bytes() *int64 {
	units := map[string]float64{"B": 1, "KB": 1 << 10, "MB": mebibyte, "GB": 1 << 30}
	unit, known := units[m.unit]
	if !known {
		return nil
	}
	return bytesOf(m.value, unit)
}

type amdGPU struct {
	GPU   int `json:"gpu"`
	Usage struct {
		Activity measured `json:"gfx_activity"`
	} `json:"usage"`
	Temperature struct {
		Edge    measured `json:"edge"`
		Hotspot measured `json:"hotspot"`
		Memory  measured `json:"mem"`
	} `json:"temperature"`
	Memory struct {
		Total measured `json:"total_vram"`
		Used  measured `json:"used_vram"`
		Free  measured `json:"free_vram"`
	} `json:"mem_usage"`
}

// parseAMDSMI reads the list of GPUs, bare as older releases print it or wrapped as newer ones do.
func parseAMDSMI(out []byte) []*ktmsv1.NodeGPU {
	var list []json.RawMessage
	if json.Unmarshal(out, &list) != nil {
		var wrapped struct {
			GPUs []json.RawMessage `json:"gpu_data"`
		}
		if json.Unmarshal(out, &wrapped) != nil {
			return nil
		}
		list = wrapped.GPUs
	}
	var gpus []*ktmsv1.NodeGPU
	for _, entry := range list {
		var a amdGPU
		if json.Unmarshal(entry, &a) != nil {
			continue
		}
		gpu := &ktmsv1.NodeGPU{
			Name:               "AMD GPU " + strconv.Itoa(a.GPU),
			UtilizationPercent: percent(a.Usage.Activity.value),
			MemoryTotalBytes:   a.Memory.Total.bytes(),
			MemoryFreeBytes:    a.Memory.Free.bytes(),
		}
		for _, t := range []measured{a.Temperature.Edge, a.Temperature.Hotspot, a.Temperature.Memory} {
			if gpu.TemperatureCelsius = celsius(t.value); gpu.TemperatureCelsius != nil {
				break
			}
		}
		if gpu.MemoryFreeBytes == nil {
			gpu.MemoryFreeBytes = minus(gpu.MemoryTotalBytes, a.Memory.Used.bytes())
		}
		gpus = append(gpus, gpu)
	}
	return gpus
}
