version 1.0

# Imputes one chromosome: every region of every batch of samples is a task. Regions are joined by `spinimpute ligate`,
# batches by `spinimpute merge`. The result is that of a single `spinimpute impute` of the phased batches.

workflow ImputeChromosome {
    input {
        Array[File] targets
        File panel
        String prefix
        String format = "GT,DS"
        Float chunk_cM = 20.0
        Int threads = 4
        Int memory_gb = 8
        String docker = "spinimpute:0.1.0"
        Int preemptible = 2
    }

    call PlanRegions {
        input: panel = panel, chunk_cM = chunk_cM, docker = docker, preemptible = preemptible
    }

    scatter (target in targets) {
        call Phase {
            input:
                target = target, panel = panel,
                threads = threads, memory_gb = memory_gb, docker = docker, preemptible = preemptible
        }
        scatter (region in PlanRegions.regions) {
            call Impute {
                input:
                    target = Phase.phased, index = Phase.phased_index, panel = panel, region = region, format = format,
                    mergeable = length(targets) > 1,
                    threads = threads, memory_gb = memory_gb, docker = docker, preemptible = preemptible
            }
        }
        call Ligate {
            input:
                chunks = Impute.imputed, panel = panel, prefix = prefix,
                threads = threads, docker = docker, preemptible = preemptible
        }
    }

    if (length(targets) > 1) {
        call Merge {
            input:
                batches = Ligate.imputed, prefix = prefix,
                threads = threads, docker = docker, preemptible = preemptible
        }
    }

    output {
        File imputed = select_first([Merge.imputed, Ligate.imputed[0]])
        File imputed_index = select_first([Merge.imputed_index, Ligate.imputed_index[0]])
    }

    parameter_meta {
        targets: "Genotypes of a batch of samples each, with all sites of the chromosome: VCF, VCF.gz or BCF. Batches have different samples."
        panel: "Panel file (.spin) of the chromosome, written by `spinimpute panel build`"
        prefix: "Name of the outputs, without suffix"
        format: "FORMAT fields of the output: GT, DS, HDS, GP, ML"
        chunk_cM: "Maximum length of the region of a task, in cM"
        threads: "Cores of a task"
        memory_gb: "Memory of the tasks that phase and impute, in GB"
        docker: "Image of workflows/container in a registry that the engine can read"
        preemptible: "Number of tries on a preemptible machine (Google Cloud)"
    }
}

task PlanRegions {
    input {
        File panel
        Float chunk_cM
        String docker
        Int preemptible
    }

    command <<<
        set -euo pipefail
        spinimpute panel chunks '~{panel}' --length-cm ~{chunk_cM} > chunks.tsv
        tail -n +2 chunks.tsv | cut -f 2 > regions.txt
    >>>

    output {
        Array[String] regions = read_lines("regions.txt")
    }

    runtime {
        docker: docker
        cpu: 1
        memory: "2 GB"
        disks: "local-disk " + (10 + ceil(size(panel, "GB"))) + " HDD"
        preemptible: preemptible
        maxRetries: 1
    }
}

task Phase {
    input {
        File target
        File panel
        Int threads
        Int memory_gb
        String docker
        Int preemptible
    }

    command <<<
        set -euo pipefail
        spinimpute phase --vcf '~{target}' --panel '~{panel}' --threads ~{threads} --quiet --out phased.vcf.gz
    >>>

    output {
        File phased = "phased.vcf.gz"
        File phased_index = "phased.vcf.gz.tbi"
    }

    runtime {
        docker: docker
        cpu: threads
        memory: memory_gb + " GB"
        disks: "local-disk " + (10 + ceil(size(panel, "GB") + 3 * size(target, "GB"))) + " HDD"
        preemptible: preemptible
        maxRetries: 1
    }
}

task Impute {
    input {
        File target
        File index
        File panel
        String region
        String format
        Boolean mergeable
        Int threads
        Int memory_gb
        String docker
        Int preemptible
    }

    command <<<
        set -euo pipefail
        # the engine may put the index into another folder
        ln -s '~{target}' target.vcf.gz
        ln -s '~{index}' target.vcf.gz.tbi
        spinimpute impute --vcf target.vcf.gz --panel '~{panel}' --region '~{region}' --buffer 0 \
            --format '~{format}' ~{true="--mergeable" false="" mergeable} \
            --threads ~{threads} --max-memory ~{memory_gb * 900}M --quiet --out chunk.vcf.gz
    >>>

    output {
        File imputed = "chunk.vcf.gz"
        File imputed_index = "chunk.vcf.gz.tbi"
    }

    runtime {
        docker: docker
        cpu: threads
        memory: memory_gb + " GB"
        disks: "local-disk " + (50 + ceil(size(panel, "GB") + size(target, "GB"))) + " HDD"
        preemptible: preemptible
        maxRetries: 1
    }
}

task Ligate {
    input {
        Array[File] chunks
        File panel
        String prefix
        Int threads
        String docker
        Int preemptible
    }

    command <<<
        set -euo pipefail
        mapfile -t chunks < '~{write_lines(chunks)}'
        spinimpute ligate "${chunks[@]}" --panel '~{panel}' --threads ~{threads} --quiet --out '~{prefix}.vcf.gz'
    >>>

    output {
        File imputed = "~{prefix}.vcf.gz"
        File imputed_index = "~{prefix}.vcf.gz.tbi"
    }

    runtime {
        docker: docker
        cpu: threads
        memory: "4 GB"
        disks: "local-disk " + (10 + ceil(size(panel, "GB") + 3 * size(chunks, "GB"))) + " HDD"
        preemptible: preemptible
        maxRetries: 1
    }
}

task Merge {
    input {
        Array[File] batches
        String prefix
        Int threads
        String docker
        Int preemptible
    }

    command <<<
        set -euo pipefail
        mapfile -t batches < '~{write_lines(batches)}'
        spinimpute merge "${batches[@]}" --threads ~{threads} --quiet --out '~{prefix}.vcf.gz'
    >>>

    output {
        File imputed = "~{prefix}.vcf.gz"
        File imputed_index = "~{prefix}.vcf.gz.tbi"
    }

    runtime {
        docker: docker
        cpu: threads
        memory: "4 GB"
        disks: "local-disk " + (10 + ceil(3 * size(batches, "GB"))) + " HDD"
        preemptible: preemptible
        maxRetries: 1
    }
}
