"""Chunks whose samples are divided among jobs (samples_per_job): each job imputes a batch, and `merge` joins batches."""


checkpoint list_samples:
    input:
        f"{OUT}/{{target}}/{{chrom}}/phased.vcf.gz",
    output:
        f"{OUT}/{{target}}/{{chrom}}/samples.txt",
    wildcard_constraints:
        target=TYPED,
    log:
        f"{OUT}/logs/list_samples.{{target}}.{{chrom}}.log",
    localrule: True
    run:
        write_names(samples_in_header(input[0]), output[0])


rule list_batch:
    input:
        f"{OUT}/{{target}}/{{chrom}}/samples.txt",
    output:
        f"{OUT}/{{target}}/{{chrom}}/samples.{{batch}}.txt",
    wildcard_constraints:
        target=TYPED,
    log:
        f"{OUT}/logs/list_batch.{{target}}.{{chrom}}.{{batch}}.log",
    localrule: True
    run:
        write_names(Path(input[0]).read_text().splitlines(), output[0], wildcards.batch)


use rule impute as impute_batch with:
    input:
        vcf=f"{OUT}/{{target}}/{{chrom}}/phased.vcf.gz",
        index=f"{OUT}/{{target}}/{{chrom}}/phased.vcf.gz.tbi",
        panel=panel_of,
        chunks=f"{OUT}/panels/{{chrom}}.chunks.tsv",
        samples=f"{OUT}/{{target}}/{{chrom}}/samples.{{batch}}.txt",
    output:
        vcf=f"{OUT}/{{target}}/{{chrom}}/chunk.{{chunk}}.{{batch}}.vcf.gz",
        index=f"{OUT}/{{target}}/{{chrom}}/chunk.{{chunk}}.{{batch}}.vcf.gz.tbi",
    wildcard_constraints:
        target=TYPED,
    log:
        f"{OUT}/logs/impute.{{target}}.{{chrom}}.{{chunk}}.{{batch}}.log",
    params:
        batch=lambda wildcards, input: f"--mergeable --samples-file {quote(str(input.samples))}",


use rule list_reads as list_reads_of_batch with:
    output:
        f"{OUT}/{{target}}/reads.{{batch}}.txt",
    log:
        f"{OUT}/logs/list_reads.{{target}}.{{batch}}.log",


use rule impute_reads as impute_reads_of_batch with:
    input:
        listed=f"{OUT}/{{target}}/reads.{{batch}}.txt",
        reads=lambda wildcards: reads_of_batch(READS, wildcards),
        indexes=lambda wildcards: reads_of_batch(INDEXES, wildcards),
        extras=extras_of,
        panel=panel_of,
        chunks=f"{OUT}/panels/{{chrom}}.overlapping.tsv",
    output:
        vcf=f"{OUT}/{{target}}/{{chrom}}/chunk.{{chunk}}.{{batch}}.vcf.gz",
        index=f"{OUT}/{{target}}/{{chrom}}/chunk.{{chunk}}.{{batch}}.vcf.gz.tbi",
        page=f"{OUT}/{{target}}/{{chrom}}/chunk.{{chunk}}.{{batch}}.html",
    wildcard_constraints:
        target=SEQUENCED,
    log:
        f"{OUT}/logs/impute.{{target}}.{{chrom}}.{{chunk}}.{{batch}}.log",
    params:
        options=options_of,
        batch="--mergeable",


rule merge:
    input:
        batches_of,
    output:
        vcf=f"{OUT}/{{target}}/{{chrom}}/chunk.{{chunk}}.vcf.gz",
        index=f"{OUT}/{{target}}/{{chrom}}/chunk.{{chunk}}.vcf.gz.tbi",
    log:
        f"{OUT}/logs/merge.{{target}}.{{chrom}}.{{chunk}}.log",
    conda:
        "environment.yaml"
    threads: THREADS
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    shell:
        "spinimpute merge {input:q} --threads {threads} --out {output.vcf:q} --force 2> {log:q}"
