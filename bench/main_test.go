//go:build unix

package bench
import ("testing";"os")
func TestMain(m *testing.M) { code := m.Run(); if inputs.dir != "" { os.RemoveAll(inputs.dir) }; os.Exit(code) }
