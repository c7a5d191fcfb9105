package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/profile"
)

const profileLong = `Read exported traces and write a profile: a small file that stands for them as an
input of every command. It holds sketches and counts of all calls, and of each
endpoint a sample of whole traces.

Profiles are inputs as well: those of many hours or hosts become one, in any order.
Every trace should be in one input only. Up to --sample traces of an endpoint nothing
is lost, and a report from the profile is the report from its traces. docs/profile.md
says what more traces cost, and describes the file.`

const profileExample = `  budgetctl profile testdata/orders -o orders.profile
  budgetctl profile testdata/dag testdata/nested --sample 500 -o both.profile
  budgetctl analyze orders.profile --budget 800ms`

func newProfile() *cobra.Command {
	var (
		f      inputFlags
		output string
		sample int
	)
	cmd := &cobra.Command{
		Use:     "profile INPUT...",
		Short:   "Keep what matters of traces in a small file",
		Long:    profileLong,
		Example: profileExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("profile needs an INPUT: a file, a folder, a glob, or - for standard input")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "" {
				return usageError{errors.New("profile needs --output FILE, or - for standard output")}
			}
			if err := errors.Join(f.check(), atLeastOne("sample", sample)); err != nil {
				return err
			}
			config := analyzer.Config{MaxTraceSpans: f.maxTraceSpans}
			if cmd.Flags().Changed("sample") {
				config.Sample = sample
			}
			return f.profile(cmd, args, output, config)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&output, "output", "o", "", "file to write; - for standard output")
	flags.IntVar(&sample, "sample", profile.DefaultFileSample,
		"whole traces to keep of each endpoint; of profiles at most what they keep, and that by default")
	f.add(flags)
	return cmd
}

func (f *inputFlags) profile(cmd *cobra.Command, inputs []string, output string, c analyzer.Config) error {
	src, done, err := f.open(cmd, inputs)
	if err != nil {
		return err
	}
	file, in, err := analyzer.Profile(cmd.Context(), c, src)
	done()
	if err != nil {
		return err
	}
	whole := tell(cmd.ErrOrStderr(), in, f.strict)
	packed, err := pack(file.Encode())
	if err != nil {
		return err
	}
	if output == "-" {
		_, err = cmd.OutOrStdout().Write(packed)
	} else {
		err = replace(output, packed)
	}
	if err != nil {
		return err
	}
	if !whole {
		return errReported
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "budgetctl: %s: %d traces, %d of them whole, in %d KB\n",
		output, file.Traces(), file.Kept(), (len(packed)+999)/1000)
	return nil
}

// pack compresses a profile. Equal profiles have equal bytes.
func pack(plain []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
