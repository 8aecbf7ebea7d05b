# The commands a user needs. Each does its own set-up; the build itself is CMake's (CMakePresets.json).

MODEL ?= models/SmolLM2-135M-Instruct
PROMPT ?= What is gravity? Answer in two sentences.
export MODEL PROMPT

.PHONY: build demo test lint fuzz clean help

build:
	@tools/setup.sh demo
	@cmake --preset release
	@cmake --build --preset release --target dak

demo: build
	@tools/demo.sh

test:
	@tools/test.sh

lint:
	@tools/setup.sh test
	@cmake --preset release
	@tools/lint.sh

fuzz:
	@tools/setup.sh test
	@cmake --preset fuzz
	@cmake --build --preset fuzz
	@tools/fuzz.sh 600

clean:
	rm -rf build

help:
	@echo "make          build the program: build/release/dak"
	@echo "make demo     fetch a small model and let it answer; PROMPT=\"...\" and MODEL=/path change"
	@echo "              the question and the model (a Hugging Face folder)"
	@echo "make test     every test: C++, Python, sanitizers, a minute of fuzzing, format"
	@echo "make lint     format, layers and clang-tidy"
	@echo "make fuzz     ten minutes of fuzzing"
	@echo "make clean    remove build/ (the model in models/ stays)"
